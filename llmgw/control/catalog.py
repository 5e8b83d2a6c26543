"""The catalog as every control plane sees it, and how it is changed.

Guarantees: what is seen is one head at one revision with all its documents; an invalid or
unreadable state of the store leaves the last good catalog in force and is named, and so does a
store from which the catalog has vanished. A change writes the documents first, in batches, then
swaps the head once against the revision it was computed from: all of it is in force, or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ha.store import ModRevisionIs, Put
from ha.watcher import Watcher
from llmgw.control.core.catalog_change import CatalogChange, apply_models, delete_models
from llmgw.control.errors import ConflictError
from llmgw.control.fenced import WRITES_MAX
from llmgw.domain.catalog import EMPTY_CATALOG, CatalogError, Head
from llmgw.kit import wall_now
from llmgw.kit.logs import get_logger
from llmgw.wire.documents import fold_catalog, fold_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ha.clock import Clock
    from ha.store import Listing, Store, Write
    from llmgw.control.fenced import FencedWriter
    from llmgw.domain.catalog import Catalog, Model
    from llmgw.wire.keys import Keys

BATCH_BYTES_MAX = 1 << 20
"""Per transaction of documents; etcd takes 1.5 MiB, and keys and framing count too."""
SWAP_TRIES_MAX = 5

_log = get_logger(__name__)


class CatalogView:
    """The catalog in force here. `catalog` is None until a good one was seen."""

    def __init__(self, store: Store, keys: Keys, clock: Clock) -> None:
        self.catalog: Catalog | None = None
        self.head = Head()
        self.problem = ""
        self.on_change: Callable[[], None] = lambda: None
        self._keys = keys
        self._head: tuple[int, bytes] | None = None
        self.watcher = Watcher(store, keys.catalog, clock, on_change=self._fold)

    def _fold(self, watcher: Watcher) -> None:
        item = watcher.items.get(self._keys.catalog_head)
        revision = item.mod_revision if item is not None else 0
        # Documents arrive before the head that names them: nothing to do until it changes,
        # unless what stands there is damaged and may just have been repaired.
        # A store restored from a backup gives revisions a second time: the value counts too.
        head_seen = (revision, item.value if item is not None else b"")
        if head_seen == self._head and not self.problem:
            return
        items = {key: item.value for key, item in watcher.items.items()}
        try:
            known = self.catalog if self.catalog is not None else EMPTY_CATALOG
            catalog = fold_catalog(self._keys, items, revision, known)
            head = fold_head(self._keys, items)
        except CatalogError as error:
            problem = f"the catalog in etcd cannot be used, the last good one stays: {error}"
            if problem != self.problem:
                _log.error("catalog refused", reason=str(error), revision=revision)
            self.problem = problem
        else:
            self.catalog, self.head, self.problem = catalog, head, ""
            _log.info("catalog in force", revision=revision, models=len(catalog.models))
        self._head = head_seen
        self.on_change()


@dataclass(frozen=True, slots=True)
class Applied:
    """A change that is in force, and the revision of the head that put it there."""

    revision: int
    change: CatalogChange


class CatalogWriter:
    """Changes the catalog; only under a leadership."""

    def __init__(
        self, store: Store, keys: Keys, view: CatalogView, writer: FencedWriter, *, timeout_s: float
    ) -> None:
        self._store = store
        self._keys = keys
        self._view = view
        self._writer = writer
        self._timeout_s = timeout_s

    async def apply(
        self, raw: object, *, prune: bool, who: str, expected_revision: int | None
    ) -> Applied:
        """Add and change models; with `prune` remove all others.

        Raises:
            CatalogError: the models are not valid, alone or with those in force.
            ConflictError: the catalog is not at `expected_revision`, or keeps changing.
            StoreError: no usable answer, or this process does not lead.
        """

        def change(in_force: Mapping[str, Model], head: Head) -> CatalogChange:
            when = wall_now().isoformat()
            return apply_models(in_force, head, raw, prune=prune, who=who, when=when)

        return await self._change(change, expected_revision)

    async def delete(
        self, names: Sequence[str], *, who: str, expected_revision: int | None
    ) -> Applied:
        """Remove models by name.

        Raises:
            ModelNotFoundError: some are not there; none was removed.
            ConflictError: the catalog is not at `expected_revision`, or keeps changing.
            StoreError: no usable answer, or this process does not lead.
        """

        def change(in_force: Mapping[str, Model], head: Head) -> CatalogChange:
            return delete_models(in_force, head, names, who=who, when=wall_now().isoformat())

        return await self._change(change, expected_revision)

    async def _change(
        self,
        change: Callable[[Mapping[str, Model], Head], CatalogChange],
        expected_revision: int | None,
    ) -> Applied:
        revision = 0
        for _ in range(SWAP_TRIES_MAX):
            # Read from the store, not from the view, which may lag behind the last change.
            listing = await self._store.list(self._keys.catalog, timeout_s=self._timeout_s)
            items = {item.key: item.value for item in listing.items}
            revision = _head_revision(listing, self._keys)
            if expected_revision is not None and expected_revision != revision:
                raise ConflictError(revision)
            models, head, damaged = self._in_force(items, revision)
            result = change(models, head)
            # What changes nothing still repairs a damaged catalog.
            if result.is_empty and not damaged:
                return Applied(revision, result)
            await self._write_documents(result.documents, items)
            swapped = await self._writer.txn(
                [ModRevisionIs(self._keys.catalog_head, revision)],
                [Put(self._keys.catalog_head, result.head.model_dump_json().encode())],
            )
            if swapped.succeeded:
                return Applied(swapped.revision, result)
        raise ConflictError(revision)

    def _in_force(
        self, items: Mapping[str, bytes], revision: int
    ) -> tuple[Mapping[str, Model], Head, bool]:
        """What a change starts from: the store, or the last good catalog if that is damaged."""
        known = self._view.catalog if self._view.catalog is not None else EMPTY_CATALOG
        try:
            catalog = fold_catalog(self._keys, items, revision, known)
            return catalog.models, fold_head(self._keys, items), False
        except CatalogError:
            return known.models, self._view.head, True

    async def _write_documents(
        self, documents: Mapping[str, bytes], items: Mapping[str, bytes]
    ) -> None:
        keyed = ((self._keys.catalog_document(name), data) for name, data in documents.items())
        missing = [Put(key, data) for key, data in keyed if items.get(key) != data]
        for batch in _batches(missing):
            await self._writer.txn((), batch)


def _head_revision(listing: Listing, keys: Keys) -> int:
    return next((i.mod_revision for i in listing.items if i.key == keys.catalog_head), 0)


def _batches(puts: Sequence[Put]) -> Iterator[list[Write]]:
    batch: list[Write] = []
    size_bytes = 0
    for put in puts:
        if batch and (len(batch) >= WRITES_MAX or size_bytes + len(put.value) > BATCH_BYTES_MAX):
            yield batch
            batch, size_bytes = [], 0
        batch.append(put)
        size_bytes += len(put.value)
    if batch:
        yield batch
