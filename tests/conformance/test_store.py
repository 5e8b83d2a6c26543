"""What `ha.store.Store` promises, proved on the store in memory and on a real etcd alike."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from ha.core.limits import TXN_BYTES_MAX, TXN_OPERATIONS_MAX
from ha.store import (
    Change,
    CompactedError,
    CreateRevisionIs,
    Delete,
    LeaseNotFoundError,
    ModRevisionIs,
    Put,
    RejectedError,
)

if TYPE_CHECKING:
    from ha.store import Store, Write
    from tests.conformance.conftest import Subject

T = 5.0


async def write(store: Store, *writes: Write) -> int:
    """Write without conditions; returns the revision."""
    result = await store.txn([], writes, timeout_s=T)
    assert result.succeeded
    return result.revision


async def collect(store: Store, prefix: str, start_revision: int, count: int) -> list[Change]:
    """The first `count` changes of a watch."""
    changes: list[Change] = []
    async with asyncio.timeout(T), contextlib.aclosing(store.watch(prefix, start_revision)) as it:
        async for batch in it:
            changes += batch.changes
            assert batch.resume_revision > max((c.mod_revision for c in batch.changes), default=0)
            if len(changes) >= count:
                return changes
    raise AssertionError("the watch ended")


async def test_a_key_is_read_with_its_revisions(subject: Subject) -> None:
    store, key = subject.store, subject.prefix + "k"
    assert await store.get(key, timeout_s=T) is None
    created = await write(store, Put(key, b"1"))
    changed = await write(store, Put(key, b"2"))
    item = await store.get(key, timeout_s=T)
    assert item is not None
    assert (item.value, item.create_revision, item.mod_revision) == (b"2", created, changed)
    assert changed == created + 1


async def test_a_prefix_is_listed_in_order_at_one_revision(subject: Subject) -> None:
    store, prefix = subject.store, subject.prefix
    await write(store, Put(prefix + "b", b"2"), Put(prefix + "a", b"1"))
    revision = await write(store, Put(prefix.rstrip("/") + "0", b"no child of the prefix"))
    listing = await store.list(prefix, timeout_s=T)
    assert [(item.key, item.value) for item in listing.items] == [
        (prefix + "a", b"1"),
        (prefix + "b", b"2"),
    ]
    assert listing.revision == revision
    assert listing.cluster_id != 0


async def test_writes_happen_only_if_all_compares_hold(subject: Subject) -> None:
    store, prefix = subject.store, subject.prefix
    first = await store.txn(
        [CreateRevisionIs(prefix + "a", 0), ModRevisionIs(prefix + "b", 0)],
        [Put(prefix + "a", b"1"), Put(prefix + "b", b"1")],
        timeout_s=T,
    )
    assert first.succeeded
    refused = await store.txn(
        [CreateRevisionIs(prefix + "a", first.revision), ModRevisionIs(prefix + "b", 0)],
        [Delete(prefix + "a"), Put(prefix + "b", b"2")],
        timeout_s=T,
    )
    assert not refused.succeeded
    assert refused.revision == first.revision, "a refused transaction takes no revision"
    assert len((await store.list(prefix, timeout_s=T)).items) == 2


async def test_a_key_written_again_keeps_its_create_revision(subject: Subject) -> None:
    store, key = subject.store, subject.prefix + "k"
    created = await write(store, Put(key, b"1"))
    await write(store, Put(key, b"2"))
    fenced = await store.txn([CreateRevisionIs(key, created)], [Put(key, b"3")], timeout_s=T)
    assert fenced.succeeded
    await write(store, Delete(key))
    again = await write(store, Put(key, b"4"))
    stale = await store.txn([CreateRevisionIs(key, created)], [Put(key, b"5")], timeout_s=T)
    assert not stale.succeeded
    assert again > created


async def test_deleting_nothing_takes_no_revision(subject: Subject) -> None:
    store, prefix = subject.store, subject.prefix
    revision = await write(store, Put(prefix + "a", b""))
    assert await write(store, Delete(prefix + "absent")) == revision


async def test_a_watch_starts_at_its_revision_and_tells_deletes(subject: Subject) -> None:
    store, prefix = subject.store, subject.prefix
    await write(store, Put(prefix + "a", b"before"))
    start = await write(store, Put(prefix + "a", b"1"), Put(prefix + "b", b"2"))
    deleted = await write(store, Delete(prefix + "a"))
    await write(store, Put(prefix.rstrip("/") + "0", b"no child of the prefix"))
    changes = await collect(store, prefix, start, 3)
    assert [(c.key, c.value, c.mod_revision) for c in changes] == [
        (prefix + "a", b"1", start),
        (prefix + "b", b"2", start),
        (prefix + "a", None, deleted),
    ]
    assert changes[2].create_revision == 0


async def test_a_watch_delivers_what_happens_after_it_was_opened(subject: Subject) -> None:
    store, prefix = subject.store, subject.prefix
    start = await write(store, Put(prefix + "a", b"1")) + 1
    waiting = asyncio.create_task(collect(store, prefix, start, 1))
    await asyncio.sleep(0)
    revision = await write(store, Put(prefix + "a", b"2"))
    [change] = await waiting
    assert (change.value, change.mod_revision, change.create_revision) == (
        b"2",
        revision,
        start - 1,
    )


async def test_a_watch_resumed_at_its_resume_revision_loses_and_doubles_nothing(
    subject: Subject,
) -> None:
    store, prefix = subject.store, subject.prefix
    resume = await write(store, Put(prefix + "n", b"")) + 1
    total, seen = 300, list[int]()
    writer = asyncio.create_task(_write_numbers(store, prefix + "n", total))
    while len(seen) < total:
        async with asyncio.timeout(T), contextlib.aclosing(store.watch(prefix, resume)) as batches:
            async for batch in batches:
                resume = batch.resume_revision
                seen += [int(change.value or b"-1") for change in batch.changes]
                if batch.changes:
                    break
    await writer
    assert seen == list(range(total))


async def _write_numbers(store: Store, key: str, total: int) -> None:
    for number in range(total):
        await write(store, Put(key, str(number).encode()))


async def test_a_backlog_resumed_after_each_batch_arrives_whole(subject: Subject) -> None:
    """Etcd cuts a long backlog into batches whose headers already show the newest revision."""
    store, prefix = subject.store, subject.prefix
    resume = await write(store, Put(prefix + "n", b"")) + 1
    total, seen = 2500, list[int]()
    for first in range(0, total, 100):
        puts = [write(store, Put(f"{prefix}{n}", b"")) for n in range(first, first + 100)]
        await asyncio.gather(*puts)
    while len(seen) < total:
        async with asyncio.timeout(T), contextlib.aclosing(store.watch(prefix, resume)) as batches:
            async for batch in batches:
                resume = batch.resume_revision
                seen += [change.mod_revision for change in batch.changes]
                if batch.changes:
                    break
    assert seen == list(range(seen[0], seen[0] + total))


async def test_a_quiet_watch_gives_signs_of_life(subject: Subject) -> None:
    store, prefix = subject.store, subject.prefix
    start = await write(store, Put(prefix + "a", b"1")) + 1
    signs = 0
    async with asyncio.timeout(T), contextlib.aclosing(store.watch(prefix, start)) as batches:
        async for batch in batches:
            assert batch.changes == ()
            assert batch.resume_revision >= start
            signs += 1
            if signs == 3:
                break


async def test_a_watch_below_the_compaction_says_so(subject: Subject) -> None:
    store, prefix = subject.store, subject.prefix
    first = await write(store, Put(prefix + "a", b"1"))
    for number in range(3):
        await write(store, Put(prefix + "a", str(number).encode()))
    newest = (await store.list(prefix, timeout_s=T)).revision
    subject.compact(newest)
    with pytest.raises(CompactedError) as caught:
        await collect(store, prefix, first, 1)
    assert caught.value.revision == newest
    [change] = await collect(store, prefix, newest, 1)
    assert change.mod_revision == newest, "the compacted revision itself is still there"


async def test_a_lease_takes_its_keys_with_it_at_one_revision(subject: Subject) -> None:
    store, prefix = subject.store, subject.prefix
    lease = await store.grant(60, timeout_s=T)
    assert lease.ttl_s >= 60
    bound = [Put(prefix + name, b"", lease.lease_id) for name in "abc"]
    start = await write(store, *bound, Put(prefix + "free", b"")) + 1
    item = await store.get(prefix + "a", timeout_s=T)
    assert item is not None
    assert item.lease_id == lease.lease_id
    await store.revoke(lease.lease_id, timeout_s=T)
    changes = await collect(store, prefix, start, 3)
    assert [(c.key, c.value) for c in changes] == [(prefix + name, None) for name in "abc"]
    assert {c.mod_revision for c in changes} == {start}
    assert [item.key for item in (await store.list(prefix, timeout_s=T)).items] == [prefix + "free"]


async def test_a_key_written_without_the_lease_is_free_of_it(subject: Subject) -> None:
    store, key = subject.store, subject.prefix + "k"
    lease = await store.grant(60, timeout_s=T)
    await write(store, Put(key, b"bound", lease.lease_id))
    await write(store, Put(key, b"free"))
    await store.revoke(lease.lease_id, timeout_s=T)
    assert await store.get(key, timeout_s=T) is not None


async def test_a_lease_that_is_gone_is_an_error(subject: Subject) -> None:
    store, key = subject.store, subject.prefix + "k"
    lease = await store.grant(60, timeout_s=T)
    assert await store.keep_alive(lease.lease_id, timeout_s=T) == lease.ttl_s
    await store.revoke(lease.lease_id, timeout_s=T)
    await store.revoke(lease.lease_id, timeout_s=T)  # gone already: no error
    with pytest.raises(LeaseNotFoundError):
        await store.keep_alive(lease.lease_id, timeout_s=T)
    with pytest.raises(LeaseNotFoundError):
        await store.txn([], [Put(key, b"", lease.lease_id)], timeout_s=T)
    assert await store.get(key, timeout_s=T) is None


async def test_an_unrenewed_lease_runs_out_not_before_its_ttl(subject: Subject) -> None:
    store, prefix = subject.store, subject.prefix
    loop = asyncio.get_running_loop()
    lease = await store.grant(2, timeout_s=T)
    granted_s = loop.time()
    start = await write(store, Put(prefix + "k", b"", lease.lease_id)) + 1
    [change] = await collect(store, prefix, start, 1)
    assert change.value is None
    assert lease.ttl_s - 0.1 <= loop.time() - granted_s <= lease.ttl_s + 2
    with pytest.raises(LeaseNotFoundError):
        await store.keep_alive(lease.lease_id, timeout_s=T)


async def test_a_transaction_of_the_largest_size_passes(subject: Subject) -> None:
    store, prefix = subject.store, subject.prefix
    await write(store, *(Put(f"{prefix}{n}", b"x") for n in range(TXN_OPERATIONS_MAX)))
    assert len((await store.list(prefix, timeout_s=T)).items) == TXN_OPERATIONS_MAX
    await write(store, Put(prefix + "large", b"x" * (TXN_BYTES_MAX - 200)))


@pytest.mark.parametrize(
    ("writes", "reason"),
    [
        ([Put(f"{n}", b"") for n in range(TXN_OPERATIONS_MAX + 1)], "at most 128 writes"),
        ([Put("k", b"x" * TXN_BYTES_MAX)], "bytes"),
        ([Put("k", b""), Delete("k")], "'k' twice"),
    ],
)
async def test_a_transaction_beyond_the_limits_is_refused_in_words(
    subject: Subject, writes: list[Write], reason: str
) -> None:
    with pytest.raises(RejectedError, match=reason):
        await subject.store.txn([], writes, timeout_s=T)


async def test_one_of_many_concurrent_creations_wins(subject: Subject) -> None:
    store, key = subject.store, subject.prefix + "k"
    results = await asyncio.gather(
        *(
            store.txn([CreateRevisionIs(key, 0)], [Put(key, str(n).encode())], timeout_s=T)
            for n in range(20)
        )
    )
    assert sum(result.succeeded for result in results) == 1


async def test_the_version_is_a_version(subject: Subject) -> None:
    version = await subject.store.version(timeout_s=T)
    assert [part.isdigit() for part in version.split(".")] == [True, True, True]
