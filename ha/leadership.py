"""One term of leadership, as its holder uses it: write, and know when it is over.

Every write carries the fence: it happens only if the leader key is still the one this leadership
created. A write that reaches the store late, from a process that slept, is refused there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from ha.store import CreateRevisionIs, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ha.store import Compare, Store, TxnResult, Write


class NotLeaderError(StoreError):
    """The write did not happen: this leadership is frozen or over."""


class _Keys(Protocol):
    @property
    def leader(self) -> str: ...


class _Elector(Protocol):
    @property
    def keys(self) -> _Keys: ...
    def is_leader(self) -> bool: ...
    def seconds_left(self) -> float: ...
    def fence_broken(self, create_revision: int) -> None: ...


class Leadership:
    """A leadership from winning to standing by; a freeze in between does not end it.

    Attributes:
        term: its number; it rises if the leader had to lift it above an older one.
        create_revision: of the leader key; the fence.
        ended: set at the transition to standby.
    """

    def __init__(self, elector: _Elector, store: Store, create_revision: int, term: int) -> None:
        self.term = term
        self.create_revision = create_revision
        self.ended = asyncio.Event()
        self._elector = elector
        self._store = store

    def is_leader(self) -> bool:
        """Whether this leadership may act now."""
        return not self.ended.is_set() and self._elector.is_leader()

    @property
    def frozen(self) -> bool:
        """Whether it may not act now, but may be allowed to again."""
        return not self.ended.is_set() and not self._elector.is_leader()

    async def txn(
        self, compares: Sequence[Compare], writes: Sequence[Write], *, timeout_s: float
    ) -> TxnResult:
        """Write, if this leadership still stands and all compares hold.

        Returns:
            The result; not succeeded means that one of the caller's compares did not hold.

        Raises:
            NotLeaderError: nothing was written, because this leadership is frozen or over.
            UnavailableError: no answer; with `maybe_applied` it may have been written.
        """
        if not self.is_leader():
            raise NotLeaderError(f"term {self.term} is {'frozen' if self.frozen else 'over'}")
        key = self._elector.keys.leader
        fence = CreateRevisionIs(key, self.create_revision)
        timeout_s = min(timeout_s, self._elector.seconds_left())
        result = await self._store.txn([fence, *compares], writes, timeout_s=timeout_s)
        if result.succeeded:
            return result
        if compares:
            found = await self._store.get(key, timeout_s=timeout_s)
            if found is not None and found.create_revision == self.create_revision:
                return result
        self._elector.fence_broken(self.create_revision)
        raise NotLeaderError(f"term {self.term} is over: the leader key is not ours any more")
