"""Writes of a leader: each a transaction on its own leader key, each recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ha.elector import Leadership
    from ha.store import Compare, TxnResult, Write
    from llmgw.kit.journal import Journal

WRITES_MAX = 100
"""Per transaction; etcd takes 128 operations, and the fence and other compares count too."""


class FencedWriter:
    """Sends transactions under one leadership."""

    def __init__(self, leadership: Leadership, journal: Journal, *, timeout_s: float) -> None:
        self._leadership = leadership
        self._journal = journal
        self._timeout_s = timeout_s

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Apply the writes if the compares hold and this process still leads.

        Raises:
            NotLeaderError: it does not lead, or the fence did not hold.
            StoreError: no usable answer.
        """
        result = await self._leadership.txn(compares, writes, timeout_s=self._timeout_s)
        if result.succeeded:
            self._journal.write(
                "write",
                term=self._leadership.term,
                revision=result.revision,
                keys=[write.key for write in writes],
            )
        return result
