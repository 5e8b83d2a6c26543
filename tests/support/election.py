"""Candidates on one store in memory, in virtual time, each behind faults of its own."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from ha.elector import ElectionKeys, Elector, Timing
from ha.memory import MemoryStore
from tests.support.faulty import FaultyStore
from tests.support.virtual import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ha.elector import Transition

KEYS = ElectionKeys("/e/leader", "/e/term", "/e/candidates/")
TTL_S = 5.0
MARGIN_S = 0.5


class World:
    """Candidates on one store, each behind faults of its own."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.memory = MemoryStore(self.clock)
        self.stores: dict[str, FaultyStore] = {}
        self.electors: dict[str, Elector] = {}
        self.heard: dict[str, list[Transition]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, *, clock: LoopClock | None = None, down: bool = False) -> Elector:
        store = self.stores[name] = FaultyStore(self.memory)
        store.down = down
        heard = self.heard[name] = []
        elector = self.electors[name] = Elector(
            store,
            clock or self.clock,
            keys=KEYS,
            identity=name,
            facts={"address": f"{name}:1"},
            timing=Timing(lease_ttl_s=TTL_S),
            random=random.Random(1),
            on_transition=heard.append,
        )
        self._tasks[name] = asyncio.create_task(elector.run())
        return elector

    async def kill(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks.pop(name), return_exceptions=True)

    async def end(self) -> None:
        for name in list(self._tasks):
            await self.kill(name)

    def now_s(self) -> float:
        return self.clock.now_s()


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[World]:
    created = World()
    try:
        yield created
    finally:
        await created.end()


async def value(store: MemoryStore, key: str) -> bytes | None:
    item = await store.get(key, timeout_s=1)
    return item.value if item else None
