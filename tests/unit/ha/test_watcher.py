"""The watcher's shell: it survives every way a watch can end, and sees what happened meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from ha.memory import MemoryStore
from ha.store import Change, Delete, KeyValue, Listing, Put, WatchBatch
from ha.watcher import RETRY_MAX_S, Watcher
from tests.support.faulty import FaultyStore
from tests.support.virtual import LoopClock, run_virtual, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator


class World:
    """A watcher of `/p/` on a store that can fail."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.memory = MemoryStore(self.clock)
        self.store = FaultyStore(self.memory)
        self.calls: list[tuple[Change, ...]] = []
        self.watcher = Watcher(
            self.store, "/p/", self.clock, on_change=lambda w: self.calls.append(w.changes)
        )

    async def put(self, name: str, value: str = "v") -> int:
        return (
            await self.memory.txn([], [Put(f"/p/{name}", value.encode())], timeout_s=1)
        ).revision

    async def delete(self, name: str) -> int:
        return (await self.memory.txn([], [Delete(f"/p/{name}")], timeout_s=1)).revision

    def values(self) -> dict[str, str]:
        return {key: item.value.decode() for key, item in self.watcher.items.items()}


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[World]:
    created = World()
    await created.put("a", "1")
    task = asyncio.create_task(created.watcher.run())
    try:
        yield created
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_it_lists_and_then_follows() -> None:
    async def scenario() -> None:
        async with world() as w:
            assert not w.watcher.synced
            await w.watcher.wait_synced()
            assert w.values() == {"/p/a": "1"}
            await w.put("b", "2")
            revision = await w.delete("a")
            await asyncio.sleep(0)
            await until(lambda: w.watcher.revision == revision, within_s=1)
            assert w.values() == {"/p/b": "2"}
            assert [[c.key for c in changes] for changes in w.calls[0:1]] == [["/p/a"]]
            assert w.watcher.resyncs == 0

    run_virtual(scenario())


def test_a_deletion_in_the_gap_is_seen_after_the_break() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.watcher.wait_synced()
            await asyncio.sleep(1)
            w.store.down = True
            await w.put("b", "2")
            await w.delete("a")
            await asyncio.sleep(10)
            assert w.values() == {"/p/a": "1"}, "the last view stays"
            assert w.watcher.problem != ""
            assert w.watcher.staleness_s() == pytest.approx(10, abs=1.1)
            w.store.down = False
            await until(lambda: w.watcher.resyncs == 1, within_s=RETRY_MAX_S)
            assert w.values() == {"/p/b": "2"}
            assert [(c.key, c.value) for c in w.calls[-1]] == [("/p/a", None), ("/p/b", b"2")]
            await asyncio.sleep(2)
            assert w.watcher.problem == ""
            assert w.watcher.staleness_s() <= 1

    run_virtual(scenario())


def test_compaction_during_the_gap_is_no_harm() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.watcher.wait_synced()
            w.store.watch_gate.clear()
            for number in range(50):
                await w.put("n", str(number))
            await w.delete("a")
            w.memory.compact(w.memory.revision)
            w.store.down = True
            w.store.watch_gate.set()
            await asyncio.sleep(3)
            w.store.down = False
            await until(lambda: w.values() == {"/p/n": "49"}, within_s=5)
            await w.put("n", "50")
            await until(lambda: w.values() == {"/p/n": "50"}, within_s=5)
            assert w.watcher.resyncs >= 1

    run_virtual(scenario())


def test_a_watch_that_is_told_of_a_compaction_lists_again() -> None:
    async def scenario() -> None:
        async with world() as w:
            listing = await w.memory.list("/p/", timeout_s=1)
            await w.put("b")
            await w.put("c")
            w.memory.compact(w.memory.revision)
            w.store.stale_listing = listing
            await w.watcher.wait_synced()
            await until(lambda: len(w.values()) == 3, within_s=2)
            assert w.watcher.resyncs == 1

    run_virtual(scenario())


class RestoredStore(MemoryStore):
    """Says what it is told to: listings in turn, and one batch after the first of them."""

    def __init__(self, batch: WatchBatch, *listings: Listing) -> None:
        super().__init__(LoopClock())
        self.listings = list(listings)
        self.batches = [batch]

    async def list(self, prefix: str, *, timeout_s: float) -> Listing:
        del prefix, timeout_s
        return self.listings.pop(0)

    async def watch(self, prefix: str, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        del prefix, start_revision
        for batch in self.batches:
            self.batches = []
            yield batch
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    "batch",
    [
        WatchBatch((Change("/p/b", b"x", 4, 4),), 5, cluster_id=1),
        WatchBatch((Change("/p/b", b"x", 99, 99),), 100, cluster_id=2),
        WatchBatch((), 100, cluster_id=2),
    ],
    ids=["gone back", "another cluster", "another cluster, silent"],
)
def test_a_store_that_is_not_the_one_it_was_is_listed_again(batch: WatchBatch) -> None:
    async def scenario() -> None:
        before = Listing((KeyValue("/p/a", b"1", 20, 20),), 20, 1)
        after = Listing((KeyValue("/p/restored", b"1", 2, 2),), 5, batch.cluster_id)
        watcher = Watcher(
            RestoredStore(batch, before, after), "/p/", LoopClock(), on_change=lambda _: None
        )
        task = asyncio.create_task(watcher.run())
        await until(lambda: list(watcher.items) == ["/p/restored"], within_s=1)
        assert watcher.resyncs == 1
        assert watcher.revision == 5
        assert watcher.changes[0] == Change("/p/a", None, 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(scenario())


def test_it_waits_for_a_store_that_is_down_at_the_start_without_haste() -> None:
    async def scenario() -> None:
        memory = MemoryStore(LoopClock())
        store = FaultyStore(memory)
        store.down = True
        watcher = Watcher(store, "/p/", LoopClock(), on_change=lambda _: None)
        task = asyncio.create_task(watcher.run())
        await asyncio.sleep(30)
        assert not watcher.synced
        assert watcher.problem == "down"
        assert watcher.staleness_s() == 30
        store.down = False
        await asyncio.wait_for(watcher.wait_synced(), RETRY_MAX_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(scenario())


def test_items_cannot_be_changed_from_outside() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.watcher.wait_synced()
            with pytest.raises(TypeError):
                w.watcher.items["/p/x"] = w.watcher.items["/p/a"]  # type: ignore[index]

    run_virtual(scenario())
