"""PURE. Who leads: one candidate's part in an election, without I/O, clock or randomness.

Events go in through `Election.handle`, with the time they are seen at; what to do comes out:
`Campaign` (one transaction that creates the leader key), `ReadLeader` (one linearizable read of
it), `Revoke` (give a lease back). Calls that were asked for carry a number; the answer to an older
call than the latest is ignored.

Guarantees:

- It leads only before its lease's deadline (`ha.core.lease`), with a leader key that it created.
- Its terms rise strictly.
- The news of an older leader key never ends a younger leadership: revisions are compared.
- The outcome of a campaign whose answer was lost is read from the store, never assumed.
- A frozen leader resumes the same term only after a renewal and a read that shows its own key.

Not guaranteed: that no other process believes it leads at the same moment. What keeps the system
safe is the fence on every write and the term on every command.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from ha.core.lease import backoff_s, trusted_until_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ha.core.lease import Timing

STORY_EVENTS_MAX = 32


class State(StrEnum):
    """Where a candidate stands."""

    STANDBY = "standby"
    CAMPAIGNING = "campaigning"  # asking for the key, or finding out whether it has it already
    LEADING = "leading"
    FROZEN = "frozen"  # its key may still be there, but its lease is no longer to be trusted


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.STANDBY: frozenset({State.CAMPAIGNING}),
    State.CAMPAIGNING: frozenset({State.LEADING, State.FROZEN, State.STANDBY}),
    State.LEADING: frozenset({State.FROZEN, State.STANDBY}),
    State.FROZEN: frozenset({State.LEADING, State.STANDBY}),
}


class IllegalTransitionError(AssertionError):
    """A programmer's error: an event that cannot happen here. The message tells the story."""


@dataclass(frozen=True, slots=True)
class LeaderKey:
    """The leader key as read. `lease_id` 0: not known (a watch does not tell)."""

    id: str
    term: int
    create_revision: int
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """A new lease, asked for at `sent_s`."""

    lease_id: int
    sent_s: float
    ttl_s: float


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """A renewal sent at `sent_s` succeeded."""

    lease_id: int
    sent_s: float
    ttl_s: float


@dataclass(frozen=True, slots=True)
class LeaseGone:
    """The store says this lease does not exist."""

    lease_id: int


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """The watch shows this leader key (or none) as of `revision`; it may lag behind."""

    revision: int
    key: LeaderKey | None


@dataclass(frozen=True, slots=True)
class LeaderRead:
    """The answer to `ReadLeader` number `call`: linearizable, the truth when it was read."""

    call: int
    key: LeaderKey | None


@dataclass(frozen=True, slots=True)
class CampaignWon:
    """The transaction of `Campaign` number `call` created the key at `create_revision`."""

    call: int
    term: int
    create_revision: int


@dataclass(frozen=True, slots=True)
class CampaignLost:
    """The transaction of `Campaign` number `call` did not happen, and will not."""

    call: int
    reason: str


@dataclass(frozen=True, slots=True)
class CampaignUnknown:
    """The transaction of `Campaign` number `call` may or may not have happened."""

    call: int
    reason: str


@dataclass(frozen=True, slots=True)
class FenceBroken:
    """A linearizable read after a refused write: the key created at `create_revision` is gone."""

    create_revision: int


@dataclass(frozen=True, slots=True)
class TermRaised:
    """The leader of `create_revision` has raised its own term by a fenced write."""

    create_revision: int
    term: int


@dataclass(frozen=True, slots=True)
class Resigned:
    """The operator, or the program itself, wants somebody else to lead."""

    reason: str


Event: TypeAlias = (
    Ticked
    | LeaseGranted
    | LeaseRenewed
    | LeaseGone
    | LeaderSeen
    | LeaderRead
    | CampaignWon
    | CampaignLost
    | CampaignUnknown
    | FenceBroken
    | TermRaised
    | Resigned
)


@dataclass(frozen=True, slots=True)
class Campaign:
    """Create the leader key, bound to `lease_id`, with a term above `above_term`."""

    call: int
    lease_id: int
    above_term: int


@dataclass(frozen=True, slots=True)
class ReadLeader:
    """Read the leader key linearizably, until there is an answer."""

    call: int


@dataclass(frozen=True, slots=True)
class Revoke:
    """Give the lease back, and all keys bound to it with it."""

    lease_id: int


Command: TypeAlias = Campaign | ReadLeader | Revoke


@dataclass(slots=True)
class Election:
    """One candidate. Only `handle` changes it.

    Attributes:
        state: see `TRANSITIONS`.
        reason: why it is in that state.
        term: its own while leading or frozen, else the last it had; 0: never led.
        create_revision: of its own leader key while leading or frozen, else 0.
        lease_id: the lease it holds; 0: none.
        deadline_s: until when that lease is trusted.
        not_before_s: when it may campaign again.
        watched: the leader key as the watch last showed it.
        watched_revision: the store's revision of that; -1: the watch showed nothing yet.
        highest_term: the highest term it had or saw.
    """

    identity: str
    timing: Timing
    state: State = State.STANDBY
    reason: str = "started"
    term: int = 0
    create_revision: int = 0
    lease_id: int = 0
    deadline_s: float = 0.0
    not_before_s: float = 0.0
    watched: LeaderKey | None = None
    watched_revision: int = -1
    highest_term: int = 0
    _call: int = 0
    _reading: bool = False
    _losses: int = 0
    _led_since_s: float = 0.0
    _disowned_revision: int = 0
    _story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY_EVENTS_MAX))

    def is_leader(self, now_s: float) -> bool:
        """Whether it may act as the leader at `now_s`: a comparison, nothing else."""
        return self.state is State.LEADING and now_s < self.deadline_s

    @property
    def owns_key(self) -> bool:
        """Whether it leads or is frozen."""
        return self.state in (State.LEADING, State.FROZEN)

    def handle(self, event: Event, *, now_s: float, jitter: float) -> list[Command]:
        """Take one event; `jitter` in [0, 1) spreads the back-off after a loss."""
        self._story.append(f"{now_s:.3f} {self.state} {event}")
        commands: list[Command] = []
        if self.state is State.LEADING and now_s >= self.deadline_s:
            self._enter(State.FROZEN, "no renewal in time: the lease may have run out")
        match event:
            case Ticked():
                pass
            case LeaseGranted() | LeaseRenewed() | LeaseGone():
                self._on_lease(event, now_s, jitter)
            case LeaderSeen():
                self._on_seen(event, now_s, jitter)
            case LeaderRead():
                self._on_read(event, now_s, jitter)
            case CampaignWon() | CampaignLost() | CampaignUnknown():
                commands += self._on_campaign(event, now_s)
            case FenceBroken(create_revision):
                if self.owns_key and create_revision == self.create_revision:
                    self._lose(now_s, jitter, "the leader key is no longer ours")
            case TermRaised(create_revision, term):
                self._on_raised(create_revision, term)
            case Resigned(reason):
                commands += self._on_resigned(reason, now_s, jitter)
        return commands + self._next_call(event, now_s)

    def next_wake_s(self) -> float | None:
        """When `Ticked` is due; None: nothing happens by time alone."""
        if self.state is State.LEADING:
            return self.deadline_s
        if self.state is State.STANDBY and self.lease_id and self.watched is None:
            return self.not_before_s
        return None

    def _next_call(self, event: Event, now_s: float) -> list[Command]:
        """What to ask the store, given what is known by now."""
        if self.state is State.FROZEN:
            renewed = isinstance(event, LeaseRenewed) and event.lease_id == self.lease_id
            return [self._read_leader()] if renewed and not self._reading else []
        if self.state is not State.STANDBY or not self.lease_id or self.watched_revision < 0:
            return []
        watched = self.watched
        if watched is None:
            if now_s < self.not_before_s or now_s >= self.deadline_s:
                return []
            self._enter(State.CAMPAIGNING, "there is no leader")
            return [Campaign(self._new_call(), self.lease_id, self.highest_term)]
        if watched.id == self.identity and watched.create_revision != self._disowned_revision:
            self._enter(State.CAMPAIGNING, "the leader key has our name")
            return [self._read_leader()]
        return []

    def _on_lease(
        self, event: LeaseGranted | LeaseRenewed | LeaseGone, now_s: float, jitter: float
    ) -> None:
        if isinstance(event, LeaseGranted):
            if self.lease_id:
                self._illegal(f"granted lease {event.lease_id:x} while holding {self.lease_id:x}")
            self.lease_id = event.lease_id
            self.deadline_s = trusted_until_s(event.sent_s, event.ttl_s, self.timing.margin_s)
        elif event.lease_id != self.lease_id:
            return
        elif isinstance(event, LeaseRenewed):
            until_s = trusted_until_s(event.sent_s, event.ttl_s, self.timing.margin_s)
            self.deadline_s = max(self.deadline_s, until_s)
        else:
            self.lease_id = 0
            if self.owns_key:
                self._lose(now_s, jitter, "the lease is gone")
            elif self.state is State.CAMPAIGNING:
                self._enter(State.STANDBY, "the lease is gone")

    def _on_seen(self, event: LeaderSeen, now_s: float, jitter: float) -> None:
        went_back = event.revision < self.watched_revision
        self.watched, self.watched_revision = event.key, event.revision
        if event.key is not None:
            self.highest_term = max(self.highest_term, event.key.term)
        if went_back and self.state is State.LEADING:
            # Restored from a backup, where the key may be another's: a read has to tell.
            self._enter(State.FROZEN, "the store went back in time")
        # What is older than our own key is the news of a predecessor's end, and none of ours.
        if not self.owns_key or event.revision < self.create_revision:
            return
        if event.key is None:
            self._lose(now_s, jitter, "the leader key was deleted")
        elif event.key.create_revision == self.create_revision:
            self._on_raised(event.key.create_revision, event.key.term)
        elif event.key.create_revision > self.create_revision:
            self._lose(now_s, jitter, f"{event.key.id!r} leads with term {event.key.term}")

    def _on_read(self, event: LeaderRead, now_s: float, jitter: float) -> None:
        if event.call != self._call:
            return
        self._reading = False
        key = event.key
        if self.state is State.FROZEN:
            if key is None or key.create_revision != self.create_revision:
                self._lose(now_s, jitter, "the leader key is no longer ours")
            elif now_s < self.deadline_s:
                self._on_raised(key.create_revision, key.term)
                self._enter(State.LEADING, "renewed, and the leader key is still ours")
        elif self.state is State.CAMPAIGNING:
            if key is not None and key.lease_id == self.lease_id and key.id == self.identity:
                self._win(key.term, key.create_revision, now_s)
                return
            if key is not None and key.id == self.identity:
                self._disowned_revision = key.create_revision
            self._enter(State.STANDBY, "the leader key is not ours")
            self.not_before_s = max(self.not_before_s, now_s + self.timing.renew_interval_s)

    def _on_campaign(
        self, event: CampaignWon | CampaignLost | CampaignUnknown, now_s: float
    ) -> list[Command]:
        if event.call > self._call:
            self._illegal(f"the answer to call {event.call}, which was never made")
        if event.call < self._call or self.state is not State.CAMPAIGNING:
            return []
        if isinstance(event, CampaignWon):
            self._win(event.term, event.create_revision, now_s)
            return []
        if isinstance(event, CampaignUnknown):
            self.reason = f"did the campaign succeed? {event.reason}"
            return [self._read_leader()]
        self._enter(State.STANDBY, event.reason)
        self.not_before_s = max(self.not_before_s, now_s + self.timing.renew_interval_s)
        return []

    def _on_raised(self, create_revision: int, term: int) -> None:
        """Only the owner of the key writes it, so a higher term in it is our own doing."""
        if self.owns_key and create_revision == self.create_revision and term > self.term:
            self.reason = f"term raised from {self.term}"
            self.term = term
            self.highest_term = max(self.highest_term, term)

    def _on_resigned(self, reason: str, now_s: float, jitter: float) -> list[Command]:
        lease_id, self.lease_id = self.lease_id, 0
        if self.owns_key:
            self._lose(now_s, jitter, f"resigned: {reason}")
        else:
            if self.state is State.CAMPAIGNING:
                self._enter(State.STANDBY, f"resigned: {reason}")
            self.not_before_s = max(self.not_before_s, now_s + backoff_s(1, jitter, self.timing))
        return [Revoke(lease_id)] if lease_id else []

    def _win(self, term: int, create_revision: int, now_s: float) -> None:
        if term <= self.term:
            self._illegal(f"won term {term} after term {self.term}")
        self.term, self.create_revision = term, create_revision
        self.highest_term = max(self.highest_term, term)
        self._led_since_s = now_s
        if now_s < self.deadline_s:
            self._enter(State.LEADING, "won the election")
        else:
            self._enter(State.FROZEN, "won the election after the lease's deadline")

    def _lose(self, now_s: float, jitter: float, reason: str) -> None:
        if now_s - self._led_since_s >= self.timing.stable_after_s:
            self._losses = 0
        self._losses += 1
        self._disowned_revision, self.create_revision = self.create_revision, 0
        self.not_before_s = now_s + backoff_s(self._losses, jitter, self.timing)
        self._enter(State.STANDBY, reason)

    def _read_leader(self) -> ReadLeader:
        self._reading = True
        return ReadLeader(self._new_call())

    def _new_call(self) -> int:
        """A number that makes the answers to all earlier calls old news."""
        self._call += 1
        return self._call

    def _enter(self, state: State, reason: str) -> None:
        if state not in TRANSITIONS[self.state]:
            self._illegal(f"{self.state} -> {state} ({reason})")
        self.state, self.reason = state, reason
        self._reading = False

    def _illegal(self, what: str) -> None:
        story = "\n  ".join(self._story)
        raise IllegalTransitionError(f"{self.identity}: {what}; it came about so:\n  {story}")
