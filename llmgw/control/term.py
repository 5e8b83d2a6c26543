"""One term at work: fold what agents say, settle, reconcile, publish.

A pass runs on every event and at least each second, and does in this order: time (expiry,
settling), the plan (each command is queued first and recorded after), endpoints. It is
level-triggered: what could not be sent or written is simply still to be done in the next pass.
Guarantees: without leadership nothing leaves; without a good catalog nothing is started, stopped
or withdrawn.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ha.store import StoreError
from llmgw.control.core import endpoints, expiry, reconcile, settling
from llmgw.control.core.events import Heard, NodeKnown, Ticked, TimersRestarted
from llmgw.control.core.fleet import Fleet
from llmgw.control.core.plan import Drain, Plan, Start, Stop, apply_step
from llmgw.control.errors import CommandError
from llmgw.control.fenced import FencedWriter
from llmgw.control.publisher import Publisher
from llmgw.control.roster import Roster
from llmgw.control.sessions import Sessions
from llmgw.domain.messages import DrainShard, StartShard, StopShard
from llmgw.kit.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ha.clock import Clock
    from ha.elector import Leadership
    from ha.store import Store
    from llmgw.control.catalog import CatalogView
    from llmgw.control.core.bookings import PortRange
    from llmgw.control.core.events import Event
    from llmgw.control.core.plan import Step
    from llmgw.domain.messages import DownBody
    from llmgw.kit.journal import Journal
    from llmgw.wire.keys import Keys

PASS_PERIOD_S = 1.0
PASS_GAP_S = 0.01
"""Events that come together share a pass."""
STALL_S = 2.5
"""A pass that comes so late means that this process heard nobody meanwhile."""
WRITE_TIMEOUT_S = 2.0
_SLUG_LENGTH_MAX = 40
_NOT_IN_SLUG = re.compile(r"[^A-Za-z0-9_.-]+")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TermSettings:
    """What a term is told. Times in seconds."""

    control_plane_id: str
    heartbeat_interval_s: float
    settle_cap_s: float
    limits: expiry.Limits
    ports: PortRange


class Term:
    """The work of one leadership. `start` must succeed before `run`."""

    def __init__(
        self,
        leadership: Leadership,
        *,
        store: Store,
        keys: Keys,
        clock: Clock,
        view: CatalogView,
        settings: TermSettings,
        journal: Journal,
        on_higher_term: Callable[[int], None],
    ) -> None:
        self.leadership = leadership
        self.writer = FencedWriter(leadership, journal, timeout_s=WRITE_TIMEOUT_S)
        self.fleet = Fleet(clock.now_s())
        self.settling = settling.Settling(clock.now_s(), settings.settle_cap_s)
        self.plan = Plan()
        self.publisher = Publisher(store, keys, self.writer, clock, timeout_s=WRITE_TIMEOUT_S)
        self._roster = Roster(store, keys, self.writer, timeout_s=WRITE_TIMEOUT_S)
        self._clock = clock
        self._view = view
        self._settings = settings
        self._wake = asyncio.Event()
        self._stopping = False
        self._last_pass_s = clock.now_s()
        self._was_leading = True
        self.sessions = Sessions(
            leadership,
            clock,
            leader_id=settings.control_plane_id,
            heartbeat_interval_s=settings.heartbeat_interval_s,
            on_event=self.fold,
            admit=self._roster.admit,
            on_higher_term=on_higher_term,
            journal=journal,
        )

    @property
    def suspicion(self) -> str:
        """Why this leader suspects itself rather than its nodes, or ""."""
        nodes = self.fleet.nodes.values()
        return expiry.self_suspicion(nodes, self._clock.now_s(), self._settings.limits)

    async def start(self) -> None:
        """Read roster and endpoints; the caller sets the deadline.

        Raises:
            StoreError: no usable answer.
        """
        await self._roster.read()
        await self.publisher.read()
        for node_id in sorted(self._roster.node_ids):
            self.fold(NodeKnown(node_id))
        for endpoint in self.publisher.held.values():
            if endpoint is not None and endpoint.node_id:
                self.fold(NodeKnown(endpoint.node_id))

    async def run(self) -> None:
        """Pass after pass until the term ends."""
        while not self.leadership.ended.is_set():
            self._wake.clear()
            await self._pass()
            # What a slow store took is no stall: agents were heard meanwhile.
            self._last_pass_s = self._clock.now_s()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PASS_PERIOD_S):
                    await self._wake.wait()
            await asyncio.sleep(PASS_GAP_S)

    def fold(self, event: Event) -> None:
        """Take in one event, and have a pass soon if it can matter to one."""
        before = self.fleet.nodes.get(event.node_id) if isinstance(event, Heard) else None
        self._note(self.fleet.fold(event, self._clock.now_s()))
        if before is not None:
            after = self.fleet.nodes[before.node_id]
            # Thousands of heartbeats a second say only that a node lives: no pass for those.
            if (after.state, after.facts) == (before.state, before.facts):
                return
        self._wake.set()

    def _note(self, notes: Iterable[str]) -> None:
        for note in notes:
            _log.info(note, term=self.leadership.term)

    def wake(self) -> None:
        """Something outside changed: the catalog, or leadership."""
        self._wake.set()
        self.sessions.wake()

    def stop_commands(self) -> None:
        """No pass from now on: this leader is about to hand over."""
        self._stopping = True

    # ---- one pass ------------------------------------------------------------------------------

    async def _pass(self) -> None:
        now_s = self._clock.now_s()
        leading = self.leadership.is_leader()
        # While frozen or stalled this process heard nobody: silence meanwhile counts for nothing.
        if (leading and not self._was_leading) or now_s - self._last_pass_s > STALL_S:
            self.fold(TimersRestarted())
            self.sessions.restart_timers()
        self._was_leading, self._last_pass_s = leading, now_s
        if not leading or self._stopping:
            return
        self.sessions.close_silent()
        self._note(self.fleet.fold(Ticked(self._settings.limits), now_s))
        try:
            await self.publisher.read_if_due()
            if self._reconcile() + await self._publish():
                self._wake.set()
        except StoreError as error:
            _log.warning("cannot write", reason=str(error), term=self.leadership.term)

    def _reconcile(self) -> int:
        catalog = self._view.catalog
        if catalog is None:
            return 0
        now_s = self._clock.now_s()
        was_done = self.settling.done
        self.settling = settling.advance(self.settling, self.fleet, catalog, now_s)
        if self.settling.done and not was_done:
            _log.info("settled", term=self.leadership.term)
        situation = reconcile.Situation(
            catalog=catalog,
            settling=self.settling,
            held=self.publisher.held,
            ports=self._settings.ports,
            now_s=now_s,
        )
        self.plan = reconcile.reconcile(self.fleet, situation, new_replica_id)
        return sum(1 for step in self.plan.steps if self._take(step))

    def _take(self, step: Step) -> bool:
        """Do one step: queue its command, then record it. Says whether it was done."""
        node_id = step.node_id if isinstance(step, Start) else step.key[0]
        message_id = ""
        try:
            body = self._command(step)
            if body is not None:
                message_id = self.sessions.send(node_id, body)
        except CommandError as error:
            _log.warning("cannot command", node=node_id, reason=str(error))
            return False
        apply_step(self.fleet, step, message_id, self._clock.now_s())
        shard_id = step.spec.shard_id if isinstance(step, Start) else step.key[1]
        _log.info(
            type(step).__name__.lower(),
            node=node_id,
            shard=shard_id,
            reason=step.reason,
            term=self.leadership.term,
        )
        return True

    def _command(self, step: Step) -> DownBody | None:
        """What to tell the node; None for a step that concerns this leader's picture only."""
        if isinstance(step, Start):
            return StartShard(step.spec, step.reason)
        if isinstance(step, Drain | Stop):
            spec = self.fleet.shards[step.key].spec
            kind = DrainShard if isinstance(step, Drain) else StopShard
            return kind(spec.replica_id, spec.shard_id, step.reason)
        return None

    async def _publish(self) -> int:
        catalog = self._view.catalog
        if catalog is None:
            return 0
        held = self.publisher.held
        wanted = endpoints.desired(self.fleet, catalog, held, settled=self.settling.done)
        return await self.publisher.publish(wanted)


def new_replica_id(model: str) -> str:
    """A fresh id that tells a person which model it is, safe as a file name."""
    slug = _NOT_IN_SLUG.sub("-", model)[:_SLUG_LENGTH_MAX].strip("-.")
    return f"{slug}-{secrets.token_hex(4)}"
