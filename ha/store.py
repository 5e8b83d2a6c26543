"""What a store must promise so that leaders can be elected by it, and the values it speaks in.

Reads are linearizable. A transaction is atomic. A watch delivers every change after its start
revision, in order, whole revisions at a time, or ends with an error: it never skips and never
blocks for ever without saying so. Every call has a deadline, counted from the call.

What it does not promise: that a write whose answer was lost did not happen. Such a call raises
`UnavailableError` with `maybe_applied=True`, and the caller finds out by reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence


class StoreError(Exception):
    """Anything that goes wrong with a store."""


class UnavailableError(StoreError):
    """No usable answer in time. `maybe_applied`: a write may or may not have happened."""

    def __init__(self, message: str, *, maybe_applied: bool = False) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied


class RejectedError(StoreError):
    """The store understood and refused; asking again the same way will not help."""


class CompactedError(StoreError):
    """The revision asked for is gone; list again. `revision` is the oldest one left, or 0."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"history before revision {revision} was compacted away")
        self.revision = revision


class LeaseNotFoundError(StoreError):
    """The lease expired or was revoked."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key. `lease_id` 0: bound to none."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class CreateRevisionIs:
    """Compare: the key was created at this revision (0: it does not exist)."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class ModRevisionIs:
    """Compare: the key was last changed at this revision (0: it does not exist)."""

    key: str
    revision: int


Compare: TypeAlias = CreateRevisionIs | ModRevisionIs


@dataclass(frozen=True, slots=True)
class Put:
    """Write a key, bound to a lease unless `lease_id` is 0."""

    key: str
    value: bytes
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a key; no error if it is not there."""

    key: str


Write: TypeAlias = Put | Delete


@dataclass(frozen=True, slots=True)
class TxnResult:
    """Whether the compares held, and the store's revision after the transaction."""

    succeeded: bool
    revision: int


@dataclass(frozen=True, slots=True)
class Listing:
    """A prefix at one revision. `cluster_id` tells one store from another."""

    items: tuple[KeyValue, ...]
    revision: int
    cluster_id: int


@dataclass(frozen=True, slots=True)
class Lease:
    """A granted lease; the store may have granted a longer TTL than was asked for."""

    lease_id: int
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """One key's change; `value` is None when it was deleted."""

    key: str
    value: bytes | None
    mod_revision: int
    create_revision: int = 0


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """Whole revisions, in order.

    `resume_revision` is the start revision that loses nothing if the watch is opened anew: the
    last change's revision + 1, or what the store said is fully delivered. An empty batch is a
    sign of life: the watch is current as of now.
    """

    changes: tuple[Change, ...]
    resume_revision: int
    cluster_id: int


class Store(Protocol):
    """A linearizable store with leases and watches. `timeout_s` bounds the whole call."""

    async def get(self, key: str, *, timeout_s: float) -> KeyValue | None:
        """Read one key, linearizably."""
        ...

    async def list(self, prefix: str, *, timeout_s: float) -> Listing:
        """Read a prefix, all of it at one revision, however large."""
        ...

    async def txn(
        self, compares: Sequence[Compare], writes: Sequence[Write], *, timeout_s: float
    ) -> TxnResult:
        """Apply all writes if all compares hold, else none."""
        ...

    async def grant(self, ttl_s: float, *, timeout_s: float) -> Lease:
        """Create a lease."""
        ...

    async def keep_alive(self, lease_id: int, *, timeout_s: float) -> float:
        """Renew a lease; returns its TTL in seconds.

        Raises:
            LeaseNotFoundError: it is gone (etcd itself reports this as success with TTL 0).
        """
        ...

    async def revoke(self, lease_id: int, *, timeout_s: float) -> None:
        """End a lease and delete its keys; no error if it is gone already."""
        ...

    def watch(self, prefix: str, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Changes from `start_revision` on, until closed.

        Raises:
            CompactedError: `start_revision` is no longer in the history.
            UnavailableError: the stream broke or fell silent; open it anew at `resume_revision`.
        """
        ...

    async def version(self, *, timeout_s: float) -> str:
        """The server's version."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
