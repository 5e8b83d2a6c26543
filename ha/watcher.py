"""Keeps a copy of a prefix of the store, and knows how old it is.

Lists at a revision and watches from the next. Whatever ends the watch (a broken or silent stream,
a compacted revision, another cluster, a store that went back in time) leads to a new list and a
diff, so a key that was deleted in the gap is seen to be gone. Between the break and the new list
the last view stays as it was; `staleness_s` says since when.

Not decided here: what the keys mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING

from ha.core.watch import Item, View
from ha.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ha.clock import Clock
    from ha.store import Change, Store, WatchBatch

__all__ = ["Item", "Watcher"]

LIST_TIMEOUT_S = 5.0
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 1.0

_log = logging.getLogger(__name__)


class Watcher:
    """A prefix, always as current as the store lets it be.

    `on_change` is called synchronously after the first listing, after each batch with changes and
    after each re-listing; `changes` then holds what is new. It must neither block nor raise.

    Attributes:
        synced: whether the prefix was ever listed.
        resyncs: how often it had to be listed again.
        changes: what the latest call of `on_change` was about.
        problem: why the view cannot be kept current right now; "" while it is.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        clock: Clock,
        *,
        on_change: Callable[[Watcher], None],
        list_timeout_s: float = LIST_TIMEOUT_S,
    ) -> None:
        self.prefix = prefix
        self.synced = False
        self.resyncs = 0
        self.changes: tuple[Change, ...] = ()
        self.problem = ""
        self._store = store
        self._clock = clock
        self._on_change = on_change
        self._list_timeout_s = list_timeout_s
        self._view = View()
        self._first_sync = asyncio.Event()
        self._current_s = clock.now_s()
        self._retry_s = RETRY_FIRST_S

    @property
    def items(self) -> Mapping[str, Item]:
        """The keys under the prefix, read-only; changes in place between calls of `on_change`."""
        return MappingProxyType(self._view.items)

    @property
    def revision(self) -> int:
        """The store's revision that `items` is known to reflect; -1 before the first listing."""
        return self._view.revision

    def staleness_s(self) -> float:
        """Seconds since the view was last known to be current (since construction, if never)."""
        return self._clock.now_s() - self._current_s

    async def wait_synced(self) -> None:
        """Wait for the first listing."""
        await self._first_sync.wait()

    async def run(self) -> None:
        """Keep the view current until cancelled, whatever the store does."""
        while True:
            try:
                await self._sync()
                await self._follow()
            except StoreError as error:
                self._report(str(error))
            await asyncio.sleep(self._retry_s)
            self._retry_s = min(RETRY_MAX_S, self._retry_s * 2)

    async def _sync(self) -> None:
        sent_s = self._clock.now_s()
        listing = await self._store.list(self.prefix, timeout_s=self._list_timeout_s)
        self._current_s = max(self._current_s, sent_s)
        if self.synced:
            self.resyncs += 1
        self.changes = self._view.replace(listing)
        self.synced = True
        self._first_sync.set()
        self._on_change(self)

    async def _follow(self) -> None:
        """Apply batches until one cannot be applied; the caller lists again."""
        batches = self._store.watch(self.prefix, self._view.watch_from_revision)
        async with contextlib.aclosing(batches):
            async for batch in batches:
                distrust = self._view.distrust(batch)
                if distrust is not None:
                    self._report(distrust)
                    return
                self._apply(batch)

    def _apply(self, batch: WatchBatch) -> None:
        self._current_s = self._clock.now_s()
        self._retry_s = RETRY_FIRST_S
        if self.problem:
            _log.info("watch of %s is current again", self.prefix)
            self.problem = ""
        self._view.apply(batch)
        if batch.changes:
            self.changes = batch.changes
            self._on_change(self)

    def _report(self, problem: str) -> None:
        if not self.problem:
            _log.warning("watch of %s: %s; listing again", self.prefix, problem)
        self.problem = problem
