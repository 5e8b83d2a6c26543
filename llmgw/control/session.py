"""One agent's stream: a bounded queue and the one task that writes.

Guarantees: leadership is checked right before every write, so a command that was queued while
this process led does not leave after it stopped leading; while frozen only heartbeats that say
so leave, and queued commands wait for the thaw or die with the stream. A full queue is an error,
never a wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from typing import TYPE_CHECKING

from llmgw.control.errors import CommandError
from llmgw.domain.messages import Down, LeaderHeartbeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ha.clock import Clock
    from ha.elector import Leadership
    from llmgw.domain.messages import DownBody
    from llmgw.kit.journal import Journal
    from llmgw.wire.link import NodeStream, RefusedError

QUEUE_MAX = 64


class Session:
    """The sending half of a stream, and when the node was last heard on it."""

    def __init__(
        self,
        node_id: str,
        registration: int,
        stream: NodeStream,
        leadership: Leadership,
        clock: Clock,
        *,
        heartbeat_interval_s: float,
        next_tick: Callable[[], int],
        journal: Journal,
    ) -> None:
        self.node_id = node_id
        self.registration = registration
        self.heard_at_s = clock.now_s()
        self.ended = asyncio.Event()
        self.refusal: RefusedError | None = None
        self._stream = stream
        self._leadership = leadership
        self._clock = clock
        self._interval_s = heartbeat_interval_s
        self._next_tick = next_tick
        self._journal = journal
        self._queue: deque[Down] = deque()
        self._wake = asyncio.Event()
        self._said_frozen = False
        self._agent_tick: int | None = None

    @property
    def queued(self) -> int:
        """Commands that wait to be written."""
        return len(self._queue)

    def send(self, body: DownBody) -> str:
        """Queue one message; returns its id.

        Raises:
            CommandError: the node does not keep up, or the stream has ended.
        """
        if self.ended.is_set():
            raise CommandError(f"no agent connected for node {self.node_id}")
        if len(self._queue) >= QUEUE_MAX:
            raise CommandError(f"node {self.node_id} is not keeping up: {QUEUE_MAX} wait already")
        message_id = uuid.uuid4().hex
        self._queue.append(Down(self._leadership.term, message_id, body))
        self._wake.set()
        return message_id

    def heard(self, agent_tick: int | None = None) -> None:
        """Anything came from the agent; a heartbeat whose tick stands still is no sign of life."""
        if agent_tick is not None:
            if agent_tick == self._agent_tick:
                return
            self._agent_tick = agent_tick
        self.heard_at_s = self._clock.now_s()

    def wake(self) -> None:
        """Let the writer look at leadership again."""
        self._wake.set()

    def close(self, refusal: RefusedError | None) -> None:
        """End the stream, with a status if one is given. The first reason stays."""
        if not self.ended.is_set():
            self.refusal = refusal
            self.ended.set()
            self._wake.set()

    async def write(self) -> None:
        """The one writer of this stream; ends with the stream."""
        beat_due_s = self._clock.now_s() + self._interval_s
        while not self.ended.is_set():
            if self._leadership.ended.is_set():
                await self.ended.wait()
                return
            self._wake.clear()
            frozen = not self._leadership.is_leader()
            now_s = self._clock.now_s()
            if now_s >= beat_due_s or frozen is not self._said_frozen:
                await self._write_heartbeat()
                beat_due_s = now_s + self._interval_s
            elif self._queue and not frozen:
                await self._write(self._queue.popleft())
            else:
                await self._wait(beat_due_s - now_s)

    async def _write(self, down: Down) -> None:
        self._record(down)
        await self._stream.send(down)

    async def _write_heartbeat(self) -> None:
        frozen = not self._leadership.is_leader()
        beat = LeaderHeartbeat(loop_tick=self._next_tick(), frozen=frozen)
        down = Down(self._leadership.term, uuid.uuid4().hex, beat)
        if frozen is not self._said_frozen:
            self._record(down)
            self._said_frozen = frozen
        await self._stream.send(down)

    def _record(self, down: Down) -> None:
        self._journal.write(
            "send",
            term=down.term,
            node_id=self.node_id,
            message_id=down.message_id,
            kind=_kind(down.body),
        )

    async def _wait(self, wait_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()


def _kind(body: DownBody) -> str:
    if isinstance(body, LeaderHeartbeat):
        return "heartbeat"
    name = type(body).__name__
    return "".join("_" + char.lower() if char.isupper() else char for char in name)[1:]
