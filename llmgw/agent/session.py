"""One attachment to one leader: register, beat, obey, report.

Order on attaching: the leader's term is durable before Register is sent, and Register is the cut:
from the moment its inventory is taken, commands of older terms are refused and changes follow as
statuses in order. One writer task per stream, started before anything is queued, takes from a
bounded queue; a leader that does not keep up with it is left, and the next Register tells all.
Ends when the stream ends, or when the leader was not heard for three of its heartbeats. Changes
while no session runs are not lost: the next Register covers them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from llmgw.agent.core.admission import stale_reason
from llmgw.agent.core.liveness import LeaderLife
from llmgw.domain.messages import (
    Ack,
    AgentHeartbeat,
    CommandResult,
    DrainShard,
    LeaderHeartbeat,
    Provision,
    Register,
    ShardStatus,
    StartShard,
    StopShard,
    Up,
)
from llmgw.kit.logs import get_logger
from llmgw.wire.convert import MalformedMessageError
from llmgw.wire.link import RefusedError

if TYPE_CHECKING:
    from ha.clock import Clock
    from llmgw.agent.discovery import Discovery
    from llmgw.agent.load import LoadSampler
    from llmgw.agent.search import Found
    from llmgw.agent.supervisor import Supervisor
    from llmgw.agent.terms import Terms
    from llmgw.domain.messages import Down, UpBody
    from llmgw.domain.node import NodeFacts
    from llmgw.domain.shard import ShardReport
    from llmgw.kit.journal import Journal

QUEUE_MAX = 64
WATCH_INTERVAL_MAX_S = 0.25

_log = get_logger(__name__)


class _EndedError(Exception):
    """The session is over; the message says why."""


class Session:
    """Serves one accepted stream until it ends; `run` returns the reason."""

    def __init__(
        self,
        found: Found,
        *,
        node_id: str,
        discovery: Discovery,
        supervisor: Supervisor,
        load: LoadSampler,
        terms: Terms,
        clock: Clock,
        journal: Journal,
    ) -> None:
        self._found = found
        self._stream = found.stream
        self._node_id = node_id
        self._discovery = discovery
        self._supervisor = supervisor
        self._load = load
        self._terms = terms
        self._clock = clock
        self._journal = journal
        self._queue: asyncio.Queue[Up] = asyncio.Queue(QUEUE_MAX)
        self._overflow = ""
        self._life = LeaderLife(clock.now_s())
        self._ack: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()

    async def run(self) -> str:
        """Register and serve; the stream is closed when this returns."""
        reason = ""
        try:
            await asyncio.to_thread(self._terms.accept, self._found.hello.term)
            problems = self._supervisor.problems
            facts = await asyncio.to_thread(self._discovery.facts, problems)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write())
                self._register(facts)
                group.create_task(self._read())
                group.create_task(self._beat())
                group.create_task(self._watch())
        except* (_EndedError, RefusedError, MalformedMessageError, OSError) as errors:
            reason = str(_first(errors))
        finally:
            self._supervisor.listen(None)
            await self._stream.close()
        return reason

    # ---- up ----------------------------------------------------------------------------------

    def _register(self, facts: NodeFacts) -> None:
        """The cut: inventory, subscription and queueing happen in one step of the event loop."""
        shards = self._supervisor.inventory()
        self._supervisor.listen(self._on_change)
        self._send(Register(self._node_id, facts, shards, self._supervisor.quarantined()))
        self._journal.write(
            "register",
            term=self._terms.highest,
            leader_id=self._found.hello.leader_id,
            shards=[shard.spec.shard_id for shard in shards],
        )

    def _on_change(self, report: ShardReport) -> None:
        try:
            self._send(ShardStatus(report))
        except _EndedError as ended:
            # Raised in a shard's task, which has no part in this: the watch ends the session.
            self._supervisor.listen(None)
            self._overflow = str(ended)

    def _send(self, body: UpBody) -> None:
        try:
            self._queue.put_nowait(Up(self._terms.highest, body))
        except asyncio.QueueFull:
            raise _EndedError(f"the leader does not keep up: {QUEUE_MAX} messages wait") from None

    async def _write(self) -> None:
        while True:
            await self._stream.send(await self._queue.get())

    async def _beat(self) -> None:
        ack = await self._ack
        tick = 0
        problems = self._supervisor.problems
        while True:
            tick += 1
            sample = await asyncio.to_thread(self._load.sample, self._supervisor.inventory())
            found = self._supervisor.problems
            news = None if found == problems else found
            problems = found
            self._send(
                AgentHeartbeat(
                    loop_tick=tick, load=sample.node, shard_loads=sample.shards, problems=news
                )
            )
            await asyncio.sleep(ack.heartbeat_interval_s)

    # ---- down --------------------------------------------------------------------------------

    async def _read(self) -> None:
        while (down := await self._stream.receive()) is not None:
            await self._take(down)
        raise _EndedError("the leader closed the stream")

    async def _take(self, down: Down) -> None:
        now_s = self._clock.now_s()
        stale = stale_reason(down.term, self._terms.highest)
        if stale is None and down.term > self._terms.highest:
            await asyncio.to_thread(self._terms.accept, down.term)
        match down.body:
            case _ if stale is not None:
                # Not a sign of life either: a leader that stays below is left.
                self._refuse_stale(down, stale)
            case Ack() as ack:
                self._life.ack(now_s, ack.heartbeat_interval_s)
                self._attached(ack)
            case LeaderHeartbeat() as beat:
                self._life.heartbeat(now_s, beat.loop_tick)
            case Provision():
                self._life.command(now_s)
            case StartShard() | StopShard() | DrainShard() as command:
                self._life.command(now_s)
                decision = self._supervisor.command(command)
                self._answer(down, accepted=decision.accepted, reason=decision.reason)
            case other:
                self._life.command(now_s)
                reason = f"this agent does not know the command {type(other).__name__}"
                self._answer(down, accepted=False, reason=reason)

    def _attached(self, ack: Ack) -> None:
        if self._ack.done():
            return
        self._ack.set_result(ack)
        hello, address = self._found.hello, self._found.target.address
        _log.info("attached", leader_id=hello.leader_id, term=hello.term, address=address)
        self._journal.write("attached", term=hello.term, leader_id=hello.leader_id, address=address)

    def _refuse_stale(self, down: Down, reason: str) -> None:
        if isinstance(down.body, Ack | LeaderHeartbeat | Provision):
            return
        self._answer(down, accepted=False, reason=reason, stale=True)

    def _answer(self, down: Down, *, accepted: bool, reason: str, stale: bool = False) -> None:
        body = down.body
        shard_id = getattr(getattr(body, "spec", body), "shard_id", "")
        highest = self._terms.highest
        facts = {"kind": type(body).__name__, "shard_id": shard_id, "accepted": accepted}
        self._journal.write(
            "command",
            term=down.term,
            message_id=down.message_id,
            reason=reason,
            highest_term=highest,
            **facts,
        )
        log = _log.info if accepted else _log.warning
        log("command", term=down.term, reason=reason, **facts)
        self._send(CommandResult(down.message_id, accepted, reason, stale, highest))

    # ---- life --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while (left_s := self._life.left_s(self._clock.now_s())) > 0:
            if self._overflow:
                raise _EndedError(self._overflow)
            await asyncio.sleep(min(left_s, WATCH_INTERVAL_MAX_S))
        raise _EndedError("nothing heard from the leader for three heartbeats")


def _first(errors: BaseExceptionGroup) -> BaseException:
    """The first error in a group of groups; they all end the session alike."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
