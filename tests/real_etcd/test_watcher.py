"""Case A02: cut off from etcd while it changes and is compacted, a watcher ends with the truth."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

from ha.clock import BootClock
from ha.store import Delete
from ha.watcher import Watcher
from tests.support.virtual import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from ha.etcd import EtcdStore
    from tests.support.etcd import Cluster


async def test_compaction_during_an_outage_is_healed_by_listing_again(
    trio: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    leader = trio.leader()
    trio.members.sort(key=lambda member: member is not leader)  # the operator's way in: the leader
    cut_off = trio.members[1]
    for number in range(10):
        trio.put(f"{prefix}{number}", "old")
    watcher = Watcher(
        open_store(cut_off), prefix, BootClock(), on_change=lambda _: None, list_timeout_s=1
    )
    running = asyncio.create_task(watcher.run())
    await watcher.wait_synced()
    cut_off.freeze()
    for number in range(50):
        trio.put(f"{prefix}{number % 10}", f"new {number}")
    trio.delete(f"{prefix}3")
    trio.compact(trio.revision())
    await until(lambda: watcher.problem != "", within_s=6)
    assert watcher.staleness_s() > 2
    assert len(watcher.items) == 10, "an outdated view stays, rather than an empty one"
    cut_off.thaw()
    trio.put(f"{prefix}last", "1")
    await until(lambda: f"{prefix}last" in watcher.items, within_s=5)
    assert sorted(watcher.items) == [f"{prefix}{n}" for n in range(10) if n != 3] + [
        f"{prefix}last"
    ]
    assert watcher.items[f"{prefix}9"].value == b"new 49"
    assert watcher.resyncs >= 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_key_that_is_no_text_blinds_nobody_and_can_be_deleted(
    solo: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    store = open_store(solo.members[0])
    watcher = Watcher(store, prefix, BootClock(), on_change=lambda _: None)
    running = asyncio.create_task(watcher.run())
    await watcher.wait_synced()
    key = base64.b64encode(prefix.encode() + b"\xff\xfe").decode()
    solo.members[0].api("kv/put", {"key": key, "value": ""})
    solo.put(f"{prefix}after", "1")
    await until(lambda: f"{prefix}after" in watcher.items or running.done(), within_s=5)
    listed = await store.list(prefix, timeout_s=5)
    assert len(watcher.items) == len(listed.items) == 2
    await store.txn([], [Delete(item.key) for item in listed.items], timeout_s=5)
    await until(lambda: not watcher.items, within_s=5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
