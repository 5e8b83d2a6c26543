"""A store in this process's memory: for tests, and for one machine that needs no etcd.

It behaves as etcd does wherever a caller could notice: one revision per transaction that changes
something, deletes that report no create revision, leases whose keys go all at once, watches that
fail below the compaction. Leases end by the given `Clock`, noticed at the next call or, while a
watch is open, by a timer. Every client of the store may share one instance; `close` does nothing.

Not durable, and not thread-safe: one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from bisect import bisect_left
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from ha.core.limits import check_txn
from ha.store import (
    Change,
    CompactedError,
    CreateRevisionIs,
    Delete,
    KeyValue,
    Lease,
    LeaseNotFoundError,
    Listing,
    Put,
    TxnResult,
    WatchBatch,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ha.clock import Clock
    from ha.store import Compare, Write

SIGN_OF_LIFE_S = 1.0
_TIMER_MIN_S = 0.001


@dataclass(slots=True)
class _LeaseState:
    ttl_s: float
    expires_s: float
    keys: set[str] = field(default_factory=set)


class MemoryStore:
    """Implements `ha.store.Store`. `revision` and `cluster_id` are as etcd's headers say them."""

    def __init__(self, clock: Clock, *, cluster_id: int = 1) -> None:
        self.revision = 1
        self.cluster_id = cluster_id
        self._clock = clock
        self._items: dict[str, KeyValue] = {}
        self._leases: dict[int, _LeaseState] = {}
        self._lease_ids = itertools.count(1)
        self._history: list[tuple[int, tuple[Change, ...]]] = []
        self._compacted = 0
        self._changed = asyncio.Event()

    async def get(self, key: str, *, timeout_s: float) -> KeyValue | None:
        """Read one key."""
        del timeout_s
        self.tick()
        return self._items.get(key)

    async def list(self, prefix: str, *, timeout_s: float) -> Listing:
        """Read a prefix, sorted by key."""
        del timeout_s
        self.tick()
        items = sorted(key for key in self._items if key.startswith(prefix))
        return Listing(tuple(self._items[key] for key in items), self.revision, self.cluster_id)

    async def txn(
        self, compares: Sequence[Compare], writes: Sequence[Write], *, timeout_s: float
    ) -> TxnResult:
        """Apply all writes if all compares hold.

        Raises:
            RejectedError: it breaks a limit that etcd has.
            LeaseNotFoundError: a write names a lease that is gone.
        """
        del timeout_s
        self.tick()
        check_txn(compares, writes)
        if not all(self._holds(compare) for compare in compares):
            return TxnResult(succeeded=False, revision=self.revision)
        for write in writes:
            if isinstance(write, Put) and write.lease_id and write.lease_id not in self._leases:
                raise LeaseNotFoundError(f"lease {write.lease_id:x} is gone")
        self._apply(writes)
        return TxnResult(succeeded=True, revision=self.revision)

    async def grant(self, ttl_s: float, *, timeout_s: float) -> Lease:
        """Create a lease with exactly the TTL asked for."""
        del timeout_s
        self.tick()
        lease_id = next(self._lease_ids)
        self._leases[lease_id] = _LeaseState(ttl_s, self._clock.now_s() + ttl_s)
        self._announce()
        return Lease(lease_id, ttl_s)

    async def keep_alive(self, lease_id: int, *, timeout_s: float) -> float:
        """Renew a lease; returns its TTL in seconds.

        Raises:
            LeaseNotFoundError: it is gone.
        """
        del timeout_s
        self.tick()
        lease = self._leases.get(lease_id)
        if lease is None:
            raise LeaseNotFoundError(f"lease {lease_id:x} is gone")
        lease.expires_s = self._clock.now_s() + lease.ttl_s
        return lease.ttl_s

    async def revoke(self, lease_id: int, *, timeout_s: float) -> None:
        """End a lease and delete its keys."""
        del timeout_s
        self.tick()
        self._end_lease(lease_id)

    async def watch(self, prefix: str, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Changes from `start_revision` on (0: from now on), and a sign of life each second.

        Raises:
            CompactedError: `start_revision` is no longer in the history.
        """
        resume = start_revision or self.revision + 1
        sign_due_s = -math.inf
        while True:
            self.tick()
            if resume < self._compacted:
                raise CompactedError(self._compacted)
            changes = self._changes_from(resume, prefix)
            resume = max(resume, self.revision + 1)
            loop_s = asyncio.get_running_loop().time()
            if changes or loop_s >= sign_due_s:
                sign_due_s = loop_s + SIGN_OF_LIFE_S
                yield WatchBatch(changes, resume, self.cluster_id)
            else:
                await self._wait_for_change(sign_due_s - loop_s)

    async def version(self, *, timeout_s: float) -> str:
        """A version that has none of the faults etcd's old versions have."""
        del timeout_s
        return "4.0.0"

    async def close(self) -> None:
        """Nothing to release: others may share this store."""

    def compact(self, revision: int) -> None:
        """Forget the history before `revision`, as etcd's compaction does."""
        self._compacted = max(self._compacted, revision)
        self._history = [entry for entry in self._history if entry[0] >= revision]
        self._announce()

    def tick(self) -> None:
        """Notice leases that have run out; needed by tests that move the clock by hand."""
        now_s = self._clock.now_s()
        expired = [key for key, lease in self._leases.items() if lease.expires_s <= now_s]
        for lease_id in expired:
            self._end_lease(lease_id)

    def _holds(self, compare: Compare) -> bool:
        item = self._items.get(compare.key)
        if item is None:
            return compare.revision == 0
        if isinstance(compare, CreateRevisionIs):
            return item.create_revision == compare.revision
        return item.mod_revision == compare.revision

    def _apply(self, writes: Sequence[Write]) -> None:
        """One revision for all of it; none when nothing changes."""
        effective = [w for w in writes if not (isinstance(w, Delete) and w.key not in self._items)]
        if not effective:
            return
        self.revision += 1
        changes = tuple(
            self._put(write) if isinstance(write, Put) else self._delete(write.key)
            for write in effective
        )
        self._history.append((self.revision, changes))
        self._announce()

    def _put(self, write: Put) -> Change:
        previous = self._items.get(write.key)
        created = previous.create_revision if previous else self.revision
        self._unbind(previous)
        if write.lease_id:
            self._leases[write.lease_id].keys.add(write.key)
        self._items[write.key] = KeyValue(
            write.key, write.value, created, self.revision, write.lease_id
        )
        return Change(write.key, write.value, self.revision, created)

    def _delete(self, key: str) -> Change:
        self._unbind(self._items.pop(key))
        return Change(key, None, self.revision)

    def _unbind(self, item: KeyValue | None) -> None:
        if item is not None and item.lease_id in self._leases:
            self._leases[item.lease_id].keys.discard(item.key)

    def _end_lease(self, lease_id: int) -> None:
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            self._apply([Delete(key) for key in sorted(lease.keys)])

    def _changes_from(self, revision: int, prefix: str) -> tuple[Change, ...]:
        first = bisect_left(self._history, revision, key=itemgetter(0))
        return tuple(
            change
            for _, changes in self._history[first:]
            for change in changes
            if change.key.startswith(prefix)
        )

    def _announce(self) -> None:
        """Wake every open watch; a new lease too, since their timers follow the leases."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_for_change(self, wait_max_s: float) -> None:
        """Until something happened, a lease may have run out, or `wait_max_s` passed."""
        now_s = self._clock.now_s()
        due_s = min((lease.expires_s for lease in self._leases.values()), default=math.inf)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(_TIMER_MIN_S, min(wait_max_s, due_s - now_s))):
                await self._changed.wait()
