"""`ha.store.Store` on etcd 3.4 or newer.

Here the store's words become etcd's; `ha.etcd.calls` decides where a call goes and what its errors
mean, `ha.etcd.watching` when a watch is dead.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import grpc.aio

from ha.core.limits import check_txn, key_bytes, key_text
from ha.etcd import wire_pb2 as wire
from ha.etcd.calls import BrokenStreamError, Calls
from ha.etcd.channels import LEASE_GRANT, LEASE_REVOKE, RANGE, STATUS, TXN, parse_endpoint
from ha.etcd.errors import TooLargeError
from ha.etcd.version import parse_version
from ha.etcd.watching import prefix_end, watch_prefix
from ha.store import (
    CompactedError,
    CreateRevisionIs,
    KeyValue,
    Lease,
    LeaseNotFoundError,
    Listing,
    Put,
    RejectedError,
    TxnResult,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ha.etcd.calls import Metadata
    from ha.etcd.channels import Endpoint, EtcdTls
    from ha.store import Compare, WatchBatch, Write

PAGE_KEYS_MAX = 1000


class EtcdStore:
    """A client of one etcd cluster, for one event loop."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: EtcdTls | None = None,
        user: str = "",
        password: str = "",
    ) -> None:
        """Nothing is connected yet.

        Raises:
            ValueError: no endpoint, or one that is not HOST:PORT.
        """
        if not endpoints:
            raise ValueError("no etcd endpoint given")
        addresses = [parse_endpoint(text, tls=tls is not None) for text in endpoints]
        self._calls = Calls(addresses, tls, user, password)

    async def get(self, key: str, *, timeout_s: float) -> KeyValue | None:
        """Read one key, linearizably."""
        request = wire.RangeRequest(key=key_bytes(key))
        response = await self._calls.unary(RANGE, request, timeout_s=timeout_s)
        return _key_value(response.kvs[0]) if response.kvs else None

    async def list(self, prefix: str, *, timeout_s: float) -> Listing:
        """Read a prefix in pages, all of them at the first page's revision."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        page_keys = PAGE_KEYS_MAX
        while True:
            try:
                return await self._list_pages(prefix, page_keys, deadline_s)
            except TooLargeError:
                if page_keys == 1:
                    raise
                page_keys = max(1, page_keys // 8)
            except CompactedError:
                if loop.time() >= deadline_s:
                    raise UnavailableError(f"list {prefix!r}: overtaken by compactions") from None

    async def _list_pages(self, prefix: str, page_keys: int, deadline_s: float) -> Listing:
        loop = asyncio.get_running_loop()
        start = key_bytes(prefix)
        end = prefix_end(start)
        items: list[KeyValue] = []
        revision, cluster_id = 0, 0
        while True:
            request = wire.RangeRequest(
                key=start, range_end=end, revision=revision, limit=page_keys
            )
            page = await self._calls.unary(RANGE, request, timeout_s=deadline_s - loop.time())
            header = page.header
            revision = revision or header.revision
            cluster_id = cluster_id or header.cluster_id
            if header.cluster_id != cluster_id:
                raise UnavailableError(f"list {prefix!r}: the endpoints are of different clusters")
            items += [_key_value(kv) for kv in page.kvs]
            if not page.more:
                return Listing(tuple(items), revision, cluster_id)
            start = page.kvs[-1].key + b"\0"

    async def txn(
        self, compares: Sequence[Compare], writes: Sequence[Write], *, timeout_s: float
    ) -> TxnResult:
        """Apply all writes if all compares hold, else none; sent at most once.

        Raises:
            UnavailableError: no answer; `maybe_applied` unless it was certainly not sent.
            RejectedError: it breaks a limit of etcd, or the user may not do this.
            LeaseNotFoundError: a write names a lease that is gone.
        """
        check_txn(compares, writes)
        request = wire.TxnRequest(
            compare=[_compare(compare) for compare in compares],
            success=[_operation(write) for write in writes],
        )
        response = await self._calls.unary(TXN, request, timeout_s=timeout_s)
        return TxnResult(response.succeeded, response.header.revision)

    async def grant(self, ttl_s: float, *, timeout_s: float) -> Lease:
        """Create a lease; etcd grants whole seconds, and no less than 2."""
        request = wire.LeaseGrantRequest(TTL=math.ceil(ttl_s))
        response = await self._calls.unary(LEASE_GRANT, request, timeout_s=timeout_s)
        if response.error:
            raise RejectedError(f"LeaseGrant: {response.error}")
        return Lease(response.ID, float(response.TTL))

    async def keep_alive(self, lease_id: int, *, timeout_s: float) -> float:
        """Renew a lease; returns its TTL in seconds.

        Raises:
            LeaseNotFoundError: it is gone, which etcd reports as success with TTL 0.
        """
        request = wire.LeaseKeepAliveRequest(ID=lease_id)

        async def attempt(endpoint: Endpoint, metadata: Metadata, attempt_s: float) -> Any:
            stream = endpoint.keep_alive(metadata, attempt_s)
            try:
                await stream.write(request)
                response = await stream.read()
            except asyncio.InvalidStateError:
                raise BrokenStreamError from None
            finally:
                stream.cancel()
            if response is grpc.aio.EOF:
                raise BrokenStreamError
            return response

        response = await self._calls.run(
            "LeaseKeepAlive", attempt, timeout_s=timeout_s, repeatable=True
        )
        if response.TTL <= 0:
            raise LeaseNotFoundError(f"lease {lease_id:x} is gone")
        return float(response.TTL)

    async def revoke(self, lease_id: int, *, timeout_s: float) -> None:
        """End a lease and delete its keys; no error if it is gone already."""
        request = wire.LeaseRevokeRequest(ID=lease_id)
        try:
            await self._calls.unary(LEASE_REVOKE, request, timeout_s=timeout_s)
        except LeaseNotFoundError:
            return

    def watch(self, prefix: str, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Changes from `start_revision` on (0: from now on); see `ha.etcd.watching`."""
        return watch_prefix(self._calls, prefix, start_revision)

    async def version(self, *, timeout_s: float) -> str:
        """The oldest version among the members that answer.

        Raises:
            UnavailableError: none answers.
        """
        answers = await asyncio.gather(
            *(self._version_of(endpoint, timeout_s) for endpoint in self._calls.endpoints),
        )
        versions = [answer for answer in answers if answer]
        if not versions:
            raise UnavailableError("Status: no endpoint answers")
        return min(versions, key=lambda version: parse_version(version) or (0, 0, 0))

    async def _version_of(self, endpoint: Endpoint, timeout_s: float) -> str:
        """One member's version; empty if it does not tell."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        metadata = await self._calls.metadata(deadline_s)
        if not await endpoint.ready(timeout_s):
            return ""
        try:
            response = await endpoint.unary(STATUS)(
                wire.StatusRequest(), metadata=metadata, timeout=timeout_s
            )
        except grpc.aio.AioRpcError:
            return ""
        return str(response.version)

    async def close(self) -> None:
        """Close every connection; calls and watches in flight fail."""
        await self._calls.close()


def _key_value(kv: Any) -> KeyValue:
    return KeyValue(key_text(kv.key), kv.value, kv.create_revision, kv.mod_revision, kv.lease)


def _compare(compare: Compare) -> Any:
    key = key_bytes(compare.key)
    if isinstance(compare, CreateRevisionIs):
        return wire.Compare(
            result=wire.Compare.EQUAL,
            target=wire.Compare.CREATE,
            key=key,
            create_revision=compare.revision,
        )
    return wire.Compare(
        result=wire.Compare.EQUAL,
        target=wire.Compare.MOD,
        key=key,
        mod_revision=compare.revision,
    )


def _operation(write: Write) -> Any:
    key = key_bytes(write.key)
    if isinstance(write, Put):
        put = wire.PutRequest(key=key, value=write.value, lease=write.lease_id)
        return wire.RequestOp(request_put=put)
    return wire.RequestOp(request_delete_range=wire.DeleteRangeRequest(key=key))
