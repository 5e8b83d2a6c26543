"""A control plane for tests of agents: a real listener that leads, refuses or stays silent.

It decides nothing: tests send commands by hand and look at what came up. Every message is kept in
`heard`, and `wait_for` waits for one with a deadline.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, TypeVar

from llmgw.domain.messages import (
    Ack,
    CommandResult,
    Down,
    LeaderHeartbeat,
    Register,
    ShardStatus,
)
from llmgw.wire.link import AgentListener, Hello, RefusalKind, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from llmgw.domain.messages import DownBody, Up
    from llmgw.domain.shard import ShardReport, ShardState
    from llmgw.wire.link import NodeStream, TlsFiles

WAIT_S = 30.0
T = TypeVar("T")


class FakeLeader:
    """Leads with `term`, or is a standby that names `leader_address` when `leading` is False."""

    def __init__(
        self,
        term: int = 1,
        *,
        leader_id: str = "cp1",
        leading: bool = True,
        leader_address: str = "",
        heartbeat_interval_s: float = 0.2,
        tls: TlsFiles | None = None,
    ) -> None:
        self.address = ""
        self.term = term
        self.leader_id = leader_id
        self.leading = leading
        self.leader_address = leader_address
        self.heartbeat_interval_s = heartbeat_interval_s
        self.beating = True
        self.frozen = False
        self.heard: list[Up] = []
        self.registrations = 0
        self.streams_open = 0
        self.dials = 0
        self.on_register: Callable[[Register], None] = lambda _: None
        self._stream: NodeStream | None = None
        self._news = asyncio.Event()
        self._ends: set[asyncio.Event] = set()
        self._ids = itertools.count(1)
        self._sending = asyncio.Lock()
        self._listener = AgentListener(self._serve, tls=tls)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; returns `host:port`."""
        bound = await self._listener.start(f"{host}:{port}")
        self.address = f"{host}:{bound}"
        return self.address

    async def stop(self) -> None:
        """Cut every stream."""
        await self._listener.stop(0)

    def cut(self) -> None:
        """End the open streams, as a leader does that stopped leading."""
        for end in self._ends:
            end.set()

    async def send(self, body: DownBody, *, term: int | None = None) -> CommandResult:
        """Send one command and wait for its result."""
        message_id = await self.post(body, term=term)
        return await self.wait_for(
            lambda up: (
                up.body
                if isinstance(up.body, CommandResult) and up.body.message_id == message_id
                else None
            )
        )

    async def post(self, body: DownBody, *, term: int | None = None) -> str:
        """Send one message on the newest stream; returns its id."""
        assert self._stream is not None
        message_id = f"m{next(self._ids)}"
        async with self._sending:
            await self._stream.send(Down(self.term if term is None else term, message_id, body))
        return message_id

    async def wait_for(self, pick: Callable[[Up], T | None]) -> T:
        """What `pick` makes of the first message it likes."""
        await self.until(lambda: any(pick(up) is not None for up in self.heard))
        return next(found for up in self.heard if (found := pick(up)) is not None)

    async def registered(self, count: int = 1) -> Register:
        """Wait for the count-th registration."""
        await self.until(lambda: self.registrations >= count)
        return [up.body for up in self.heard if isinstance(up.body, Register)][count - 1]

    async def shard(self, shard_id: str, state: ShardState) -> ShardReport:
        """Wait until a status or a registration says that a shard is in this state."""

        def pick(up: Up) -> ShardReport | None:
            reports: tuple[ShardReport, ...] = ()
            if isinstance(up.body, ShardStatus):
                reports = (up.body.shard,)
            if isinstance(up.body, Register):
                reports = up.body.shards
            for report in reports:
                if report.spec.shard_id == shard_id and report.state is state:
                    return report
            return None

        return await self.wait_for(pick)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until something heard makes this true."""
        async with asyncio.timeout(WAIT_S):
            while not happened():
                self._news.clear()
                await self._news.wait()

    async def _serve(self, stream: NodeStream) -> None:
        self.dials += 1
        if not self.leading:
            raise RefusedError(
                RefusalKind.UNAVAILABLE,
                "standby",
                leader_address=self.leader_address,
                term=self.term if self.leader_address else 0,
            )
        await stream.hello(Hello(self.leader_id, self.term))
        self._stream = stream
        self.streams_open += 1
        end = asyncio.Event()
        self._ends.add(end)
        tasks = [
            asyncio.create_task(work)
            for work in (self._beat(stream), self._read(stream), end.wait())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.streams_open -= 1
            self._ends.discard(end)
            self._news.set()
            for task in tasks:
                task.cancel()
        if end.is_set():
            raise RefusedError(RefusalKind.UNAVAILABLE, "no longer the leader")

    async def _read(self, stream: NodeStream) -> None:
        while (up := await stream.receive()) is not None:
            self.heard.append(up)
            if isinstance(up.body, Register):
                self.on_register(up.body)
                await self.post(Ack(self.heartbeat_interval_s))
                self.registrations += 1
            self._news.set()

    async def _beat(self, stream: NodeStream) -> None:
        for tick in itertools.count(1):
            await asyncio.sleep(self.heartbeat_interval_s)
            if self.beating and stream is self._stream:
                await self.post(LeaderHeartbeat(tick, frozen=self.frozen))
