"""Keeps one process in an election: the shell around `ha.core.election`.

It holds a lease from the start (so a take-over is one transaction), shows the process under
`candidates/`, watches the leader key, campaigns, renews, freezes and stands by, until cancelled. A
store that is down, at the start too, is waited for.

`is_leader()` compares the clock with a deadline and does nothing else; every write of a
`Leadership` is one transaction conditional on its own leader key. Between the two there is no
moment in which a process that slept through its lease can change anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import quote

from ha.core import election as core
from ha.core.lease import Timing
from ha.leaderkey import LeaderInfo, decode_leader, decode_term, encode_candidate, encode_leader
from ha.leadership import Leadership, NotLeaderError
from ha.store import (
    CreateRevisionIs,
    LeaseNotFoundError,
    ModRevisionIs,
    Put,
    RejectedError,
    StoreError,
    UnavailableError,
)
from ha.watcher import Watcher

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from ha.clock import Clock
    from ha.store import Store

__all__ = [
    "ElectionKeys",
    "Elector",
    "LeaderInfo",
    "Leadership",
    "NotLeaderError",
    "Role",
    "Timing",
    "Transition",
]

TERM_JUMP_MAX = 1_000_000
REVOKE_TRIES_MAX = 3
PAUSE_MIN_S = 0.01

_log = logging.getLogger(__name__)


class Role(StrEnum):
    """What others may expect of this process."""

    STANDBY = "standby"
    LEADING = "leading"
    FROZEN = "frozen"


_ROLES = {
    core.State.STANDBY: Role.STANDBY,
    core.State.CAMPAIGNING: Role.STANDBY,
    core.State.LEADING: Role.LEADING,
    core.State.FROZEN: Role.FROZEN,
}


@dataclass(frozen=True, slots=True)
class ElectionKeys:
    """Where the election lives in the store. `candidates` is a prefix that ends in `/`."""

    leader: str
    term: str
    candidates: str


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of role, or of the term of a leader that stays (`old` and `new` are the same)."""

    old: Role
    new: Role
    term: int
    reason: str


def _ignore(_: Transition) -> None:
    """Nobody listens."""


class Elector:
    """One candidate. `run` must be running for anything to happen.

    Attributes:
        keys: where the election lives.
        identity: this candidate's name; the lease tells apart two processes of the same name.
        problem: why the store cannot be used right now, for people; "" when it can.
        obstacle: what stands in the store that keeps anybody from leading, for people; or "".
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        keys: ElectionKeys,
        identity: str,
        facts: Mapping[str, str],
        timing: Timing,
        random: random.Random,
        on_transition: Callable[[Transition], None] = _ignore,
    ) -> None:
        self.keys = keys
        self.identity = identity
        self.problem = ""
        self.obstacle = ""
        self._store = store
        self._clock = clock
        self._facts = dict(facts)
        self._timing = timing
        self._random = random
        self._on_transition = on_transition
        self._core = core.Election(identity, timing)
        self._announced = (Role.STANDBY, 0)
        self._seen: LeaderInfo | None = None
        self._leadership: Leadership | None = None
        self._changed = asyncio.Event()
        self._call: core.Campaign | core.ReadLeader | None = None
        self._called = asyncio.Event()
        self._candidate_lease_id = 0
        self._present_from_s = 0.0
        self._raising = asyncio.Lock()

    @property
    def role(self) -> Role:
        """Leading only before the deadline, whether or not the freeze was announced yet."""
        role = _ROLES[self._core.state]
        return Role.FROZEN if role is Role.LEADING and not self.is_leader() else role

    @property
    def term(self) -> int:
        """The own term while leading or frozen, else the highest seen; 0: none."""
        return self._core.term if self._core.owns_key else self._core.highest_term

    @property
    def leader(self) -> LeaderInfo | None:
        """Who leads, as last seen in the store; this process included."""
        if self._core.owns_key:
            own = self._core
            return LeaderInfo(self.identity, own.term, self._facts, own.create_revision)
        return self._seen

    def is_leader(self) -> bool:
        """Whether this process may act as the leader now: a comparison with the deadline."""
        return self._core.is_leader(self._clock.now_s())

    async def lead(self) -> Leadership:
        """Wait until this process leads; a leadership that thaws is the same object."""
        while True:
            if self._leadership is not None and self.is_leader():
                return self._leadership
            await self.wait_change()

    async def wait_change(self) -> None:
        """Wait for the next change of role, of the own term, or of the leader seen."""
        await self._changed.wait()

    async def resign(self, reason: str) -> None:
        """Stop leading now and let the others know; stand by again after a back-off.

        Also takes back this process's presence among the candidates. If the store cannot be
        reached the lease runs out by itself.
        """
        for command in self._feed(core.Resigned(reason)):
            if isinstance(command, core.Revoke):
                self._present_from_s = self._core.not_before_s
                await self._revoke(command.lease_id)

    async def raise_term(self, above: int) -> int:
        """Lift counter and leader key above a term that somebody has already accepted.

        Happens after the store was restored from a backup. Returns the new term of this leadership.

        Raises:
            NotLeaderError: this process does not lead (any more).
            RejectedError: the jump is larger than `TERM_JUMP_MAX`.
            UnavailableError: no answer; with `maybe_applied` the term may rise a little later.
        """
        async with self._raising:
            leadership = self._leadership
            if leadership is None or not self.is_leader():
                raise NotLeaderError("only the leader may raise the term")
            if above < leadership.term:
                return leadership.term
            if above - leadership.term > TERM_JUMP_MAX:
                raise RejectedError(
                    f"term {above} is more than {TERM_JUMP_MAX} above {leadership.term}: refused"
                )
            timeout_s = self._timing.call_timeout_s
            counter = await self._store.get(self.keys.term, timeout_s=timeout_s)
            term = max(above, leadership.term) + 1
            result = await leadership.txn(
                [ModRevisionIs(self.keys.term, counter.mod_revision if counter else 0)],
                [
                    Put(self.keys.term, str(term).encode()),
                    Put(
                        self.keys.leader,
                        encode_leader(self.identity, term, self._facts),
                        self._core.lease_id,
                    ),
                ],
                timeout_s=timeout_s,
            )
            if not result.succeeded:
                raise UnavailableError("the term counter changed meanwhile; ask again")
            self._feed(core.TermRaised(leadership.create_revision, term))
            return term

    async def run(self) -> None:
        """Take part in the election until cancelled."""
        watcher = Watcher(
            self._store,
            self.keys.leader,
            self._clock,
            on_change=self._on_watch,
            list_timeout_s=self._timing.call_timeout_s,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watcher.run())
            tasks.create_task(self._hold_lease())
            tasks.create_task(self._make_calls())
            tasks.create_task(self._tick())

    def fence_broken(self, create_revision: int) -> None:
        """A write of the leadership with this leader key was refused because the key is gone."""
        self._feed(core.FenceBroken(create_revision))

    def seconds_left(self) -> float:
        """How long the lease is to be trusted from now on; negative: no more."""
        return self._core.deadline_s - self._clock.now_s()

    def _feed(self, event: core.Event) -> list[core.Command]:
        """The only way into the state machine; what it wants done is begun here."""
        commands = self._core.handle(event, now_s=self._clock.now_s(), jitter=self._random.random())
        for command in commands:
            if isinstance(command, core.Campaign | core.ReadLeader):
                self._call = command
                self._called.set()
        self._announce()
        return commands

    def _announce(self) -> None:
        """Tell of a changed role or term, after `Leadership` objects are as they should be."""
        state = self._core
        old_role, old_term = self._announced
        role, term = _ROLES[state.state], state.term
        current = self._leadership
        if current is not None and current.create_revision != state.create_revision:
            current.ended.set()
            self._leadership = current = None
        if state.owns_key:
            if current is None:
                current = Leadership(self, self._store, state.create_revision, term)
                self._leadership = current
            current.term = term
        if (role, term) == (old_role, old_term):
            return
        self._announced = (role, term)
        _log.info("%s: %s -> %s, term %d: %s", self.identity, old_role, role, term, state.reason)
        self._notify()
        self._on_transition(Transition(old_role, role, term, state.reason))

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _on_watch(self, watcher: Watcher) -> None:
        item = watcher.items.get(self.keys.leader)
        seen = None if item is None else decode_leader(item.value, item.create_revision)
        key = None if seen is None else core.LeaderKey(seen.id, seen.term, seen.create_revision)
        changed, self._seen = seen != self._seen, seen
        if seen is not None:
            # It may be anybody's, so nobody campaigns over it.
            unreadable = f"{self.keys.leader} cannot be read: delete it unless somebody leads"
            self.obstacle = "" if seen.id else unreadable
        self._feed(core.LeaderSeen(watcher.revision, key))
        if changed:
            self._notify()

    async def _tick(self) -> None:
        while True:
            wake_s, now_s = self._core.next_wake_s(), self._clock.now_s()
            pause_s = self._timing.renew_interval_s
            if wake_s is not None and wake_s > now_s:
                pause_s = min(pause_s, wake_s - now_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(PAUSE_MIN_S, pause_s)):
                    await self._changed.wait()
            self._feed(core.Ticked())

    async def _hold_lease(self) -> None:
        """Have a lease and keep it, and be shown among the candidates while there is one."""
        while True:
            started_s = self._clock.now_s()
            try:
                await self._renew_or_grant(started_s)
                if self.problem:
                    _log.info("%s: the store answers again", self.identity)
                    self.problem = ""
            except StoreError as error:
                if not self.problem:
                    _log.warning("%s: the store does not answer: %s", self.identity, error)
                self.problem = str(error) or type(error).__name__
            spent_s = self._clock.now_s() - started_s
            await asyncio.sleep(max(PAUSE_MIN_S, self._timing.renew_interval_s - spent_s))

    async def _renew_or_grant(self, sent_s: float) -> None:
        lease_id, timeout_s = self._core.lease_id, self._timing.call_timeout_s
        if lease_id:
            try:
                ttl_s = await self._store.keep_alive(lease_id, timeout_s=timeout_s)
            except LeaseNotFoundError:
                self._feed(core.LeaseGone(lease_id))
            else:
                self._feed(core.LeaseRenewed(lease_id, sent_s, ttl_s))
        if not self._core.lease_id:
            if sent_s < self._present_from_s:
                return
            sent_s = self._clock.now_s()
            lease = await self._store.grant(self._timing.lease_ttl_s, timeout_s=timeout_s)
            self._feed(core.LeaseGranted(lease.lease_id, sent_s, lease.ttl_s))
        lease_id = self._core.lease_id
        if lease_id != self._candidate_lease_id:
            value = encode_candidate(self.identity, self._facts)
            put = Put(self.keys.candidates + quote(self.identity, safe=""), value, lease_id)
            await self._store.txn([], [put], timeout_s=timeout_s)
            self._candidate_lease_id = lease_id

    async def _revoke(self, lease_id: int) -> None:
        for _ in range(REVOKE_TRIES_MAX):
            try:
                await self._store.revoke(lease_id, timeout_s=self._timing.call_timeout_s)
            except StoreError as error:
                _log.warning("%s: cannot revoke the lease: %s", self.identity, error)
            else:
                return

    async def _make_calls(self) -> None:
        """Make the call the state machine asked for last; one at a time."""
        while True:
            await self._called.wait()
            self._called.clear()
            call = self._call
            if isinstance(call, core.Campaign):
                self._feed(await self._campaign(call))
            elif call is not None:
                await self._read_leader(call)

    async def _campaign(self, call: core.Campaign) -> core.Event:
        timeout_s = self._timing.call_timeout_s
        try:
            counter = await self._store.get(self.keys.term, timeout_s=timeout_s)
            term = max(decode_term(counter.value) if counter else 0, call.above_term) + 1
            result = await self._store.txn(
                [
                    CreateRevisionIs(self.keys.leader, 0),
                    ModRevisionIs(self.keys.term, counter.mod_revision if counter else 0),
                ],
                [
                    Put(
                        self.keys.leader,
                        encode_leader(self.identity, term, self._facts),
                        call.lease_id,
                    ),
                    Put(self.keys.term, str(term).encode()),
                ],
                timeout_s=timeout_s,
            )
        except UnavailableError as error:
            if error.maybe_applied:
                return core.CampaignUnknown(call.call, str(error))
            return core.CampaignLost(call.call, f"cannot campaign: {error}")
        except LeaseNotFoundError:
            return core.LeaseGone(call.lease_id)
        except StoreError as error:
            _log.warning("%s: cannot campaign: %s", self.identity, error)
            self.obstacle = f"{self.keys.term}: {error}"
            return core.CampaignLost(call.call, f"cannot campaign: {error}")
        if not result.succeeded:
            return core.CampaignLost(call.call, "another candidate was quicker")
        return core.CampaignWon(call.call, term, result.revision)

    async def _read_leader(self, call: core.ReadLeader) -> None:
        """Read until there is an answer, or until the state machine wants something else."""
        while self._call is call and not self._called.is_set():
            try:
                found = await self._store.get(
                    self.keys.leader, timeout_s=self._timing.call_timeout_s
                )
            except StoreError as error:
                _log.debug("%s: cannot read the leader key: %s", self.identity, error)
                await asyncio.sleep(self._timing.renew_interval_s)
                continue
            key = None
            if found is not None:
                info = decode_leader(found.value, found.create_revision)
                key = core.LeaderKey(info.id, info.term, found.create_revision, found.lease_id)
            self._feed(core.LeaderRead(call.call, key))
            return
