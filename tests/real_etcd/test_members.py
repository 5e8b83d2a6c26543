"""Calls and watches while members hang, die, or are cut off from the others."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from ha.clock import BootClock
from ha.etcd.watching import SILENCE_S
from ha.store import Put, StoreError, UnavailableError
from ha.watcher import Watcher
from tests.support.virtual import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ha.etcd import EtcdStore
    from ha.store import WatchBatch
    from tests.support.etcd import Cluster, Member

T = 5.0
SIXTH_OF_TTL_S = 5.0 / 6


def split(cluster: Cluster) -> tuple[Member, list[Member]]:
    """Etcd's leader, and the others."""
    leader = cluster.leader()
    return leader, [member for member in cluster.members if member is not leader]


async def drain(watch: AsyncGenerator[WatchBatch, None]) -> None:
    """Read a watch until it ends."""
    async with asyncio.timeout(10), contextlib.aclosing(watch):
        async for _ in watch:
            pass


async def test_reads_and_renewals_move_on_from_a_hung_member_within_one_call(
    trio: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    leader, (hung, other) = split(trio)
    reader, renewer = open_store(hung, leader, other), open_store(hung, leader, other)
    await reader.txn([], [Put(prefix + "k", b"v")], timeout_s=T)
    lease = await renewer.grant(30, timeout_s=T)
    hung.freeze()
    item = await reader.get(prefix + "k", timeout_s=SIXTH_OF_TTL_S)
    assert item is not None
    assert await renewer.keep_alive(lease.lease_id, timeout_s=SIXTH_OF_TTL_S) == lease.ttl_s
    async with asyncio.timeout(0.3):  # the hung one is not asked first again
        await reader.get(prefix + "k", timeout_s=SIXTH_OF_TTL_S)


async def test_a_write_to_a_hung_member_may_have_been_applied(
    trio: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    leader, (hung, other) = split(trio)
    store = open_store(hung, leader, other)
    await store.get(prefix + "k", timeout_s=T)
    hung.freeze()
    with pytest.raises(UnavailableError) as caught:
        await store.txn([], [Put(prefix + "k", b"1")], timeout_s=SIXTH_OF_TTL_S)
    assert caught.value.maybe_applied
    await store.txn([], [Put(prefix + "k", b"2")], timeout_s=SIXTH_OF_TTL_S)


async def test_a_write_that_never_left_is_sent_elsewhere(
    trio: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    leader, (hung, dead) = split(trio)
    hung.freeze()
    store = open_store(hung, leader)  # connects, and never gets an answer
    assert (await store.txn([], [Put(prefix + "k", b"1")], timeout_s=T)).succeeded
    hung.thaw()
    dead.kill()
    store = open_store(dead, leader)
    async with asyncio.timeout(1):
        assert (await store.txn([], [Put(prefix + "k", b"2")], timeout_s=T)).succeeded


async def test_without_any_member_nothing_was_applied(
    open_store: Callable[..., EtcdStore], solo: Cluster, prefix: str
) -> None:
    [member] = solo.members
    member.kill()
    store = open_store(member)
    with pytest.raises(UnavailableError) as caught:
        await store.txn([], [Put(prefix + "k", b"1")], timeout_s=0.5)
    assert not caught.value.maybe_applied
    member.start()
    solo.wait_ready()
    assert (await store.txn([], [Put(prefix + "k", b"1")], timeout_s=T)).succeeded


async def test_a_watch_on_a_hung_member_ends_with_an_error(
    trio: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    _, (hung, _) = split(trio)
    store = open_store(hung)
    loop = asyncio.get_running_loop()
    watch = store.watch(prefix, 0)
    await anext(watch)
    hung.freeze()
    frozen_s = loop.time()
    with pytest.raises(UnavailableError, match="silent"):
        await drain(watch)
    assert loop.time() - frozen_s < SILENCE_S + 1


async def test_a_member_without_a_quorum_says_so_at_once_and_ends_watches(
    trio: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    leader, (cut_off, other) = split(trio)
    store = open_store(cut_off)
    watch = store.watch(prefix, 0)
    await anext(watch)
    leader.freeze()
    other.freeze()
    with pytest.raises(UnavailableError, match="no leader"):
        await drain(watch)
    with pytest.raises(UnavailableError, match="no leader") as caught:
        await store.txn([], [Put(prefix + "k", b"1")], timeout_s=0.5)
    assert not caught.value.maybe_applied


async def test_a_watcher_loses_nothing_while_members_die(
    trio: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    leader, others = split(trio)
    store, writer = open_store(leader, *others), open_store(*others)
    watcher = Watcher(store, prefix, BootClock(), on_change=lambda _: None)
    running = asyncio.create_task(watcher.run())
    await watcher.wait_synced()
    for number in range(60):
        if number == 20:
            leader.kill()
        with contextlib.suppress(StoreError):  # applied or not: the listing below is the truth
            await writer.txn([], [Put(f"{prefix}{number}", b"v")], timeout_s=0.4)
    truth: dict[str, int] = {}

    def current() -> bool:
        return {key: item.mod_revision for key, item in watcher.items.items()} == truth

    listing = await writer.list(prefix, timeout_s=T)
    truth.update({item.key: item.mod_revision for item in listing.items})
    await until(current, within_s=8)
    assert len(truth) > 20
    assert watcher.resyncs >= 1
    await until(lambda: watcher.staleness_s() < 1.5, within_s=5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_closing_a_store_fails_what_is_in_flight_and_cancels_nobody(
    trio: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    _, (follower, _) = split(trio)
    store = open_store(follower)
    watcher = Watcher(store, prefix, BootClock(), on_change=lambda _: None)
    running = asyncio.create_task(watcher.run())
    await watcher.wait_synced()
    follower.freeze()
    reading = asyncio.create_task(store.get(prefix + "k", timeout_s=1))
    writing = asyncio.create_task(store.txn([], [Put(prefix + "k", b"")], timeout_s=1))
    await asyncio.sleep(0.1)  # both are on their way
    await store.close()
    results = await asyncio.gather(reading, writing, return_exceptions=True)
    assert [type(result) for result in results] == [UnavailableError, UnavailableError]
    assert isinstance(results[1], UnavailableError)
    assert results[1].maybe_applied
    await until(lambda: watcher.problem != "", within_s=2)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_version_comes_from_the_members_that_answer(
    trio: Cluster, open_store: Callable[..., EtcdStore]
) -> None:
    trio.members[0].kill()
    version = await open_store(*trio.members).version(timeout_s=1)
    assert version.startswith("3.")
