"""PURE. What a watched prefix holds, and when a view of it can no longer be trusted.

A view starts from a listing and grows by batches whose changes are all younger than what it has.
A batch from another cluster, or one that goes back in time (a store restored from a backup), is
not applied: the caller lists again, and `replace` says what differs, deletions included.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ha.store import Change

if TYPE_CHECKING:
    from ha.store import Listing, WatchBatch


@dataclass(frozen=True, slots=True)
class Item:
    """One key's value, and the revisions that changed and created it."""

    value: bytes
    mod_revision: int
    create_revision: int


@dataclass(slots=True)
class View:
    """A prefix as of `revision` of the store `cluster_id`; -1: never listed."""

    items: dict[str, Item] = field(default_factory=dict)
    revision: int = -1
    cluster_id: int = 0

    @property
    def watch_from_revision(self) -> int:
        """The first revision this view has not seen."""
        return self.revision + 1

    def replace(self, listing: Listing) -> tuple[Change, ...]:
        """Take a listing as the truth; returns how it differs from what was here, by key."""
        fresh = {
            kv.key: Item(kv.value, kv.mod_revision, kv.create_revision) for kv in listing.items
        }
        gone = [Change(key, None, listing.revision) for key in self.items if key not in fresh]
        changed = [
            Change(key, item.value, item.mod_revision, item.create_revision)
            for key, item in fresh.items()
            if self.items.get(key) != item
        ]
        self.items = fresh
        self.revision = listing.revision
        self.cluster_id = listing.cluster_id
        return tuple(sorted([*gone, *changed], key=lambda change: change.key))

    def distrust(self, batch: WatchBatch) -> str | None:
        """Why `batch` cannot follow this view; None if it can."""
        if batch.cluster_id != self.cluster_id:
            return f"another store answers: {batch.cluster_id:x}, not {self.cluster_id:x}"
        oldest = min((change.mod_revision for change in batch.changes), default=None)
        if oldest is not None and oldest <= self.revision:
            return f"the store went back: revision {oldest} after {self.revision}"
        return None

    def apply(self, batch: WatchBatch) -> None:
        """Take the changes of a batch that `distrust` has nothing against."""
        for change in batch.changes:
            if change.value is None:
                self.items.pop(change.key, None)
            else:
                self.items[change.key] = Item(
                    change.value, change.mod_revision, change.create_revision
                )
            self.revision = max(self.revision, change.mod_revision)
        self.revision = max(self.revision, batch.resume_revision - 1)
