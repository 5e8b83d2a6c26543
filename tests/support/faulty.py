"""A store that can be down, hang, lose answers, or show its watches late; around a real one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

from ha.store import UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from ha.store import Compare, KeyValue, Lease, Listing, Store, TxnResult, WatchBatch, Write

T = TypeVar("T")


class FaultyStore:
    """One client's view of `inner`.

    Attributes:
        down: every call fails at once, and open watches break.
        hung: every call takes its whole timeout and fails; watches break.
        lose_answers: that many transactions are applied but reported as of unknown outcome.
        late_txns: transactions are not applied, reported as unknown, and kept in `kept` to be
            applied later by `release`.
        aim: the two above strike only transactions that write this key; empty: all.
        stale_listing: what the next `list` answers, instead of the truth.
        answers_after_s: how long the answers to renewals are under way.
        renewals_sent_s: when renewals were sent, by the loop's time.
        watch_gate: while cleared, watches deliver nothing.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.down = False
        self.hung = False
        self.lose_answers = 0
        self.late_txns = 0
        self.watch_gate = asyncio.Event()
        self.watch_gate.set()
        self.aim = ""
        self.stale_listing: Listing | None = None
        self.answers_after_s = 0.0
        self.renewals_sent_s: list[float] = []
        self.kept: list[Callable[[], Awaitable[TxnResult]]] = []
        self.txns_sent = 0

    async def release(self) -> list[TxnResult]:
        """Deliver the transactions that were held up on the way."""
        kept, self.kept = self.kept, []
        return [await send() for send in kept]

    async def _reach(self, timeout_s: float, *, write: bool = False) -> None:
        if self.hung:
            await asyncio.sleep(timeout_s)
            raise UnavailableError("hung", maybe_applied=write)
        if self.down:
            raise UnavailableError("down")

    async def get(self, key: str, *, timeout_s: float) -> KeyValue | None:
        await self._reach(timeout_s)
        return await self.inner.get(key, timeout_s=timeout_s)

    async def list(self, prefix: str, *, timeout_s: float) -> Listing:
        await self._reach(timeout_s)
        if self.stale_listing is not None:
            listing, self.stale_listing = self.stale_listing, None
            return listing
        return await self.inner.list(prefix, timeout_s=timeout_s)

    async def txn(
        self, compares: Sequence[Compare], writes: Sequence[Write], *, timeout_s: float
    ) -> TxnResult:
        await self._reach(timeout_s, write=True)
        self.txns_sent += 1
        struck = not self.aim or any(write.key == self.aim for write in writes)
        if struck and self.late_txns:
            self.late_txns -= 1
            self.kept.append(lambda: self.inner.txn(compares, writes, timeout_s=timeout_s))
            raise UnavailableError("on the way", maybe_applied=True)
        result = await self.inner.txn(compares, writes, timeout_s=timeout_s)
        if struck and self.lose_answers:
            self.lose_answers -= 1
            raise UnavailableError("the answer was lost", maybe_applied=True)
        return result

    async def grant(self, ttl_s: float, *, timeout_s: float) -> Lease:
        await self._reach(timeout_s)
        return await self.inner.grant(ttl_s, timeout_s=timeout_s)

    async def keep_alive(self, lease_id: int, *, timeout_s: float) -> float:
        self.renewals_sent_s.append(asyncio.get_running_loop().time())
        await self._reach(timeout_s)
        ttl_s = await self.inner.keep_alive(lease_id, timeout_s=timeout_s)
        await asyncio.sleep(self.answers_after_s)
        return ttl_s

    async def revoke(self, lease_id: int, *, timeout_s: float) -> None:
        await self._reach(timeout_s)
        await self.inner.revoke(lease_id, timeout_s=timeout_s)

    async def watch(self, prefix: str, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        await self._reach(1.0)
        async with contextlib.aclosing(self.inner.watch(prefix, start_revision)) as batches:
            async for batch in batches:
                await self.watch_gate.wait()
                if self.down or self.hung:
                    raise UnavailableError("the watch broke")
                yield batch

    async def version(self, *, timeout_s: float) -> str:
        await self._reach(timeout_s)
        return await self.inner.version(timeout_s=timeout_s)

    async def close(self) -> None:
        await self.inner.close()
