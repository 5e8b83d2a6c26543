"""Whatever happens in whatever order, the election keeps its guarantees.

A model of the store decides what each call would have found; hypothesis decides when answers come,
which are lost, which transactions arrive late, and when time passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ha.core import election as core
from ha.core.lease import Timing

TTL_S = 5.0


@dataclass
class World:
    """One candidate `me` against a store in which `other` may lead too."""

    me: core.Election = field(default_factory=lambda: core.Election("me", Timing()))
    now_s: float = 100.0
    revision: int = 1
    term: int = 0
    key: core.LeaderKey | None = None
    leases: dict[int, float] = field(default_factory=dict)
    next_lease: int = 1
    asked: list[core.Command] = field(default_factory=list)
    late: list[core.Campaign] = field(default_factory=list)
    views: list[core.LeaderSeen] = field(default_factory=list)
    led: list[tuple[int, int]] = field(default_factory=list)

    def feed(self, event: core.Event) -> None:
        before = self.me.state
        self.asked += self.me.handle(event, now_s=self.now_s, jitter=0.0)
        if self.me.state is core.State.LEADING and before is not core.State.LEADING:
            self.led.append((self.me.term, self.me.create_revision))
        self.check()

    def check(self) -> None:
        if self.me.is_leader(self.now_s):
            assert self.now_s < self.me.deadline_s
            # Safe to say "leader": no server can have dropped the lease before our deadline, unless
            # it was revoked, and then the fence holds.
            assert self.leases.get(self.me.lease_id, self.now_s + 1) > self.now_s
        terms = [term for term, _ in self.led]
        assert terms == sorted(terms), "terms never fall"
        keys = dict.fromkeys(create for _, create in self.led)
        assert len({term for term, _ in self.led}) == len(keys), "one term for each key"

    def set_key(self, key: core.LeaderKey | None) -> None:
        self.key = key
        self.views.append(core.LeaderSeen(self.revision, key))

    def expire(self) -> None:
        for lease_id in [each for each, until_s in self.leases.items() if until_s <= self.now_s]:
            self.drop_lease(lease_id)

    def drop_lease(self, lease_id: int) -> None:
        del self.leases[lease_id]
        if self.key is not None and self.key.lease_id == lease_id:
            self.revision += 1
            self.set_key(None)

    def campaign(self, command: core.Campaign, term_read: int) -> core.Event | None:
        """Apply a campaign's transaction; None: it does not apply."""
        if self.key is not None or self.term != term_read or command.lease_id not in self.leases:
            return None
        self.revision += 1
        self.term = max(self.term, command.above_term) + 1
        self.set_key(core.LeaderKey("me", self.term, self.revision, command.lease_id))
        return core.CampaignWon(command.call, self.term, self.revision)

    def step(self, action: str, amount: int) -> None:
        self.now_s += amount / 10
        self.expire()
        getattr(self, f"do_{action}")()

    def do_tick(self) -> None:
        self.feed(core.Ticked())

    def do_lease(self) -> None:
        lease_id = self.me.lease_id
        if not lease_id:
            self.leases[self.next_lease] = self.now_s + TTL_S
            self.feed(core.LeaseGranted(self.next_lease, self.now_s, TTL_S))
            self.next_lease += 1
        elif lease_id in self.leases:
            self.leases[lease_id] = self.now_s + TTL_S
            sent_s, self.now_s = self.now_s, self.now_s + 0.1
            self.feed(core.LeaseRenewed(lease_id, sent_s, TTL_S))
        else:
            self.feed(core.LeaseGone(lease_id))

    def do_answer(self) -> None:
        self._answer(lost=False)

    def do_lose_answer(self) -> None:
        self._answer(lost=True)

    def _answer(self, *, lost: bool) -> None:
        if not self.asked:
            return
        command = self.asked.pop(0)
        if isinstance(command, core.ReadLeader):
            self.feed(core.LeaderRead(command.call, self.key))
        elif isinstance(command, core.Campaign):
            event = self.campaign(command, self.term)
            if lost:
                event = core.CampaignUnknown(command.call, "lost")
            self.feed(event or core.CampaignLost(command.call, "beaten"))
        elif command.lease_id in self.leases:
            self.drop_lease(command.lease_id)

    def do_delay_campaign(self) -> None:
        """The transaction hangs on its way; it may be applied at any later time."""
        if self.asked and isinstance(self.asked[0], core.Campaign):
            command = self.asked.pop(0)
            assert isinstance(command, core.Campaign)
            self.late.append(command)
            self.feed(core.CampaignUnknown(command.call, "on its way"))

    def do_arrive(self) -> None:
        if self.late:
            self.campaign(self.late.pop(), self.term)

    def do_see(self) -> None:
        if self.views:
            seen = self.views.pop(0)
            key = seen.key and core.LeaderKey(seen.key.id, seen.key.term, seen.key.create_revision)
            self.feed(core.LeaderSeen(seen.revision, key))

    def do_other_leads(self) -> None:
        if self.key is None:
            self.revision += 1
            self.term += 1
            self.set_key(core.LeaderKey("other", self.term, self.revision, 0))

    def do_key_deleted(self) -> None:
        if self.key is not None:
            self.revision += 1
            self.set_key(None)

    def do_resign(self) -> None:
        self.feed(core.Resigned("drawn"))

    def do_fence(self) -> None:
        own = self.me.create_revision
        if own and (self.key is None or self.key.create_revision != own):
            self.feed(core.FenceBroken(own))


ACTIONS = [name.removeprefix("do_") for name in dir(World) if name.startswith("do_")]
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 20)), max_size=80)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_safe_in_any_order_and_leading_again_once_all_is_well(steps: list[tuple[str, int]]) -> None:
    world = World()
    world.views.append(core.LeaderSeen(1, None))
    for action, amount in steps:
        world.step(action, amount)
    if world.key is not None and world.key.id == "other":
        world.do_key_deleted()
    world.late.clear()
    for _ in range(2000):
        for action in ("lease", "answer", "see", "tick"):
            world.step(action, 1)
        if world.me.is_leader(world.now_s) and not world.views:
            break
    assert world.me.is_leader(world.now_s)
    assert world.key is not None
    assert world.key.create_revision == world.me.create_revision
