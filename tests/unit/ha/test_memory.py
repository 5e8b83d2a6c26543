"""What only the store in memory does: leases by the given clock, and sharing without threads."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from ha.memory import SIGN_OF_LIFE_S, MemoryStore
from ha.store import LeaseNotFoundError, Put
from tests.support.virtual import LoopClock, ManualClock, run_virtual


async def test_leases_run_out_by_the_clock_it_was_given() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    lease = await store.grant(5, timeout_s=1)
    await store.txn([], [Put("/k", b"", lease.lease_id)], timeout_s=1)
    clock.advance(4.9)
    await store.keep_alive(lease.lease_id, timeout_s=1)
    clock.advance(4.9)
    assert await store.get("/k", timeout_s=1) is not None
    clock.advance(0.1)
    assert await store.get("/k", timeout_s=1) is None
    with pytest.raises(LeaseNotFoundError):
        await store.keep_alive(lease.lease_id, timeout_s=1)


def test_an_open_watch_sees_a_lease_run_out_on_time_though_nobody_calls() -> None:
    async def scenario() -> None:
        clock = LoopClock()
        store = MemoryStore(clock)
        lease = await store.grant(2.5, timeout_s=1)
        await store.txn([], [Put("/k", b"", lease.lease_id)], timeout_s=1)
        async with contextlib.aclosing(store.watch("/", 0)) as batches:
            async for batch in batches:
                if batch.changes:
                    break
        assert clock.now_s() == pytest.approx(2.5, abs=0.002)

    run_virtual(scenario())


def test_signs_of_life_come_each_second_also_beside_short_leases() -> None:
    async def scenario() -> None:
        clock = LoopClock()
        store = MemoryStore(clock)
        lease = await store.grant(0.4, timeout_s=1)

        async def renew() -> None:
            while True:
                await asyncio.sleep(0.1)
                await store.keep_alive(lease.lease_id, timeout_s=1)

        renewing = asyncio.create_task(renew())
        signs = 0
        async with contextlib.aclosing(store.watch("/", 0)) as batches:
            async for _ in batches:
                signs += 1
                if signs == 4:
                    break
        assert clock.now_s() == pytest.approx(3 * SIGN_OF_LIFE_S, abs=0.5)
        renewing.cancel()

    run_virtual(scenario())


async def test_a_tick_wakes_watches_after_the_clock_was_moved_by_hand() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    lease = await store.grant(500, timeout_s=1)
    await store.txn([], [Put("/k", b"", lease.lease_id)], timeout_s=1)
    batches = store.watch("/", 0)
    await anext(batches)
    waiting = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0)
    clock.advance(500)
    store.tick()
    async with asyncio.timeout(SIGN_OF_LIFE_S / 2):
        assert [change.value for change in (await waiting).changes] == [None]
    await batches.aclose()


async def test_closing_one_client_leaves_the_store_to_the_others() -> None:
    store = MemoryStore(ManualClock())
    await store.close()
    assert (await store.txn([], [Put("/k", b"")], timeout_s=1)).succeeded
