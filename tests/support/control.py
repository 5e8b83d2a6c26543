"""Control planes in this process, on a store in memory, and agents that do what they are told."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import random
from typing import TYPE_CHECKING, Any

from ha.clock import BootClock
from ha.elector import Timing
from ha.store import UnavailableError
from llmgw.control.api.server import AdminServer
from llmgw.control.core.bookings import PortRange
from llmgw.control.core.expiry import Limits
from llmgw.control.main import _bind, _Door
from llmgw.control.plane import ControlPlane
from llmgw.control.term import TermSettings
from llmgw.domain.messages import (
    AgentHeartbeat,
    CommandResult,
    DrainShard,
    LeaderHeartbeat,
    Register,
    ShardStatus,
    StartShard,
    StopShard,
    Up,
)
from llmgw.domain.shard import ShardReport, ShardState
from llmgw.kit.journal import Journal
from llmgw.wire.link import AgentListener, GrpcDialer, Hello, RefusedError, TlsFiles
from tests.support.fleet import facts
from tests.support.virtual import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from pathlib import Path

    from ha.memory import MemoryStore
    from ha.store import Store, WatchBatch
    from llmgw.domain.messages import Down, DownBody
    from llmgw.wire.link import LeaderStream

WAIT_S = 15.0
LEASE_TTL_S = 2.0


class SkewedClock:
    """The real clock of one process, which a test may move forward."""

    def __init__(self, skew_s: float) -> None:
        self.skew_s = skew_s
        self._boot = BootClock()

    def now_s(self) -> float:
        return self._boot.now_s() + self.skew_s


class CuttableStore:
    """A store behind a link that a test may cut."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._cut = False

    def cut(self) -> None:
        self._cut = True

    def mend(self) -> None:
        self._cut = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **more: Any) -> Any:
            if self._cut:
                raise UnavailableError("the link is cut")
            return await method(*args, **more)

        return call

    async def watch(self, prefix: str, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        async with contextlib.aclosing(self._store.watch(prefix, start_revision)) as batches:
            async for batch in batches:
                if self._cut:
                    raise UnavailableError("the link is cut")
                yield batch


@dataclasses.dataclass
class Running:
    """A control plane at work."""

    plane: ControlPlane
    admin: str
    agents: str
    task: asyncio.Task[None]
    clock: SkewedClock
    journal: Path

    def records(self, event: str) -> list[dict[str, Any]]:
        lines = self.journal.read_text().splitlines()
        return [record for line in lines if (record := json.loads(line))["event"] == event]

    async def leads(self) -> None:
        await until(lambda: self.plane.leader.term is not None, within_s=WAIT_S)

    async def die(self) -> None:
        """End without a word: no lease is given up."""
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@contextlib.asynccontextmanager
async def running_plane(
    store: Store,
    folder: Path,
    identity: str = "cp1",
    *,
    tls: TlsFiles | None = None,
    heartbeat_interval_s: float = 2.0,
    settle_cap_s: float = 30.0,
    limits: Limits | None = None,
    skew_s: float = 0.0,
) -> AsyncIterator[Running]:
    """One control plane with both listeners, until the block ends."""
    clock = SkewedClock(skew_s)
    path = folder / f"{identity}.journal"
    journal = Journal(path, control_plane=identity)
    door = _Door()
    listener = AgentListener(door.serve, tls=tls)
    admin_socket = _bind("127.0.0.1:0", "--admin-listen")
    agents = f"127.0.0.1:{await listener.start('127.0.0.1:0')}"
    admin = f"127.0.0.1:{admin_socket.getsockname()[1]}"
    plane = ControlPlane(
        store,
        clock,
        cluster="test",
        settings=TermSettings(
            identity, heartbeat_interval_s, settle_cap_s, limits or Limits(), PortRange()
        ),
        agent_address=agents,
        admin_address=admin,
        timing=Timing(lease_ttl_s=LEASE_TTL_S, backoff_first_s=0.2),
        random=random.Random(identity),
        journal=journal,
    )
    door.plane = plane
    server = AdminServer(plane)
    await server.start(admin_socket)
    running = Running(plane, admin, agents, asyncio.create_task(plane.run()), clock, path)
    try:
        yield running
    finally:
        await running.die()
        await server.stop()
        await listener.stop(0)
        journal.close()


class Agent:
    """An agent without engines: it reports what it was told to run as running.

    `obey=False` leaves every command unanswered.
    """

    def __init__(
        self, node_id: str = "node-a", *, tls: TlsFiles | None = None, obey: bool = True
    ) -> None:
        self.node_id = node_id
        self.shards: dict[str, ShardReport] = {}
        self.received: list[Down] = []
        self.term = 0
        self.refused: RefusedError | None = None
        self.detached = asyncio.Event()
        self._dialer = GrpcDialer(tls=tls)
        self._obey = obey
        self._stream: LeaderStream | None = None
        self._writing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    def got(self, *kinds: type) -> list[DownBody]:
        return [down.body for down in self.received if isinstance(down.body, kinds)]

    @property
    def commands(self) -> list[DownBody]:
        return self.got(StartShard, StopShard, DrainShard)

    async def attach(
        self, address: str, *, heartbeat_s: float = 0.1, server_name: str = "localhost"
    ) -> Hello:
        """Dial, register, and go on in the background."""
        self._stream = stream = self._dialer.open(address, server_name)
        try:
            async with asyncio.timeout(WAIT_S):
                hello = await stream.hello()
        except RefusedError:
            await stream.close()
            raise
        self.term = max(self.term, hello.term)
        await self.register()
        self._tasks = [
            asyncio.create_task(self._listen(stream)),
            asyncio.create_task(self._beat(stream, heartbeat_s)),
        ]
        return hello

    async def register(self, node_id: str | None = None) -> None:
        node = self.node_id if node_id is None else node_id
        await self.say(Register(node, facts(self.node_id), tuple(self.shards.values())))

    async def say(self, body: Any) -> None:
        assert self._stream is not None
        await self._write(self._stream, body)

    async def _write(self, stream: LeaderStream, body: Any) -> None:
        """Heartbeats and answers come from tasks of their own; one may write at a time."""
        async with self._writing:
            await stream.send(Up(self.term, body))

    async def report(self, shard_id: str, state: ShardState, reason: str = "") -> None:
        """A shard changes its state by itself."""
        changed = dataclasses.replace(self.shards[shard_id], state=state, reason=reason)
        self.shards[shard_id] = changed
        await self.say(ShardStatus(changed))

    async def waits_for(self, condition: Callable[[], Any], within_s: float = WAIT_S) -> None:
        await until(lambda: bool(condition()), within_s=within_s)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._stream is not None:
            await self._stream.close()

    async def _listen(self, stream: LeaderStream) -> None:
        try:
            while (down := await stream.receive()) is not None:
                self.received.append(down)
                if self._obey:
                    await self._do(down)
        except RefusedError as refused:
            self.refused = refused
        self.detached.set()

    async def _do(self, down: Down) -> None:
        body = down.body
        if isinstance(body, StartShard | StopShard | DrainShard):
            await self.say(CommandResult(down.message_id, accepted=True))
        if isinstance(body, StartShard):
            shard = ShardReport(body.spec, ShardState.READY, pid=100, ready_for_s=0.01)
            self.shards[body.spec.shard_id] = shard
            await self.say(ShardStatus(shard))
        elif isinstance(body, StopShard | DrainShard) and body.shard_id in self.shards:
            gone = self.shards.pop(body.shard_id)
            await self.say(ShardStatus(dataclasses.replace(gone, state=ShardState.STOPPED)))

    async def _beat(self, stream: LeaderStream, interval_s: float) -> None:
        tick = 0
        with contextlib.suppress(RefusedError):
            while True:
                await asyncio.sleep(interval_s)
                tick += 1
                await self._write(stream, AgentHeartbeat(tick))

    @property
    def frozen_beats(self) -> list[bool]:
        return [body.frozen for body in self.got(LeaderHeartbeat)]  # type: ignore[union-attr]


@contextlib.asynccontextmanager
async def agents(*listed: Agent) -> AsyncIterator[None]:
    """Close these agents when the block ends."""
    try:
        yield
    finally:
        for agent in listed:
            await agent.close()
