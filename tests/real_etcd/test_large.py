"""Prefixes and backlogs that no single message holds."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ha.etcd.channels import RECEIVE_BYTES_MAX
from ha.store import Put

if TYPE_CHECKING:
    from collections.abc import Callable

    from ha.etcd import EtcdStore
    from tests.support.etcd import Cluster

T = 20.0
# Three of these are written in one revision; etcd cuts messages where five have been filled in, so
# that a revision is spread over two of them.
VALUE_BYTES = 400_000


async def test_a_list_of_many_keys_is_one_revision(
    solo: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    store = open_store(*solo.members)
    for start in range(0, 5120, 128):
        puts = [Put(f"{prefix}{number:05}", b"x" * 1000) for number in range(start, start + 128)]
        await store.txn([], puts, timeout_s=T)
    listing = await store.list(prefix, timeout_s=T)
    assert [item.key for item in listing.items] == [f"{prefix}{n:05}" for n in range(5120)]
    assert max(item.mod_revision for item in listing.items) == listing.revision


async def test_lists_and_backlogs_larger_than_a_message_arrive_whole(
    solo: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    store = open_store(*solo.members)
    revisions = RECEIVE_BYTES_MAX // (3 * VALUE_BYTES) + 2
    start = (await store.list(prefix, timeout_s=T)).revision + 1
    for number in range(revisions):
        puts = [Put(f"{prefix}{number:03}{part}", b"x" * VALUE_BYTES) for part in "abc"]
        await store.txn([], puts, timeout_s=T)
    listing = await store.list(prefix, timeout_s=T)
    assert len(listing.items) == 3 * revisions
    seen: list[str] = []
    async with asyncio.timeout(T), contextlib.aclosing(store.watch(prefix, start)) as batches:
        async for batch in batches:
            assert len(batch.changes) % 3 == 0, "a revision was cut"
            seen += [change.key for change in batch.changes]
            if len(seen) == 3 * revisions:
                break
    assert seen == [item.key for item in listing.items]
