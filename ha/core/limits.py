"""What one transaction may carry: the limits of an etcd server with its default settings.

Checked before anything is sent, so that a caller hears which limit it broke instead of a status
code, and the store in memory refuses what etcd would refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.store import Put, RejectedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ha.store import Compare, Write

TXN_OPERATIONS_MAX = 128
TXN_BYTES_MAX = 1536 * 1024
# Field tags, lengths and the lease id of one operation on the wire take less than this.
_OPERATION_OVERHEAD_BYTES = 64


def key_bytes(key: str) -> bytes:
    """A key as the store has it; one that is no text (see `key_text`) comes back as it was."""
    return key.encode(errors="surrogateescape")


def key_text(key: bytes) -> str:
    """A key as this program has it, also one that is no text.

    Anybody may write such a key, and it must not blind everybody who reads its prefix.
    """
    return key.decode(errors="surrogateescape")


def txn_bytes(compares: Sequence[Compare], writes: Sequence[Write]) -> int:
    """An upper bound of a transaction's size on the wire, in bytes."""
    payload_bytes = sum(len(key_bytes(compare.key)) for compare in compares)
    for write in writes:
        payload_bytes += len(key_bytes(write.key))
        if isinstance(write, Put):
            payload_bytes += len(write.value)
    return payload_bytes + _OPERATION_OVERHEAD_BYTES * (len(compares) + len(writes))


def check_txn(compares: Sequence[Compare], writes: Sequence[Write]) -> None:
    """Refuse a transaction that no etcd would take.

    Raises:
        RejectedError: too many operations, too many bytes, or one key written twice.
    """
    for what, count in (("compares", len(compares)), ("writes", len(writes))):
        if count > TXN_OPERATIONS_MAX:
            raise RejectedError(
                f"a transaction holds at most {TXN_OPERATIONS_MAX} {what}, not {count}: split it"
            )
    size_bytes = txn_bytes(compares, writes)
    if size_bytes > TXN_BYTES_MAX:
        raise RejectedError(
            f"a transaction holds at most {TXN_BYTES_MAX} bytes, not {size_bytes}: split it"
        )
    seen: set[str] = set()
    for write in writes:
        if write.key in seen:
            raise RejectedError(f"a transaction writes {write.key!r} twice")
        seen.add(write.key)
