"""Connections to etcd: one channel per endpoint, and the methods called through it.

One channel each, because a channel with many addresses sticks to the first that accepts TCP. A
channel is made at its first use, inside the event loop it belongs to. `Endpoint.ready` tells
before a request is sent whether there is a connection at all: a request that was never begun has
provably not been applied.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from ha.etcd import wire_pb2 as wire

RECEIVE_BYTES_MAX = 64 * 1024 * 1024

# etcd closes connections that ping more often than every 5 s, or without a call in flight. The
# time limit of a ping is a setting of its own: keepalive_timeout_ms does not bound it.
_OPTIONS = [
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]


@dataclass(frozen=True)
class EtcdTls:
    """PEM: the CA to trust, and the client certificate with its key."""

    ca: bytes
    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Method:
    """A unary method of etcd; `repeatable`: doing it twice does no more than doing it once."""

    name: str
    path: str
    response: Any
    repeatable: bool


RANGE = Method("Range", "/etcdserverpb.KV/Range", wire.RangeResponse, repeatable=True)
TXN = Method("Txn", "/etcdserverpb.KV/Txn", wire.TxnResponse, repeatable=False)
# A second lease that nobody knows of runs out by itself.
LEASE_GRANT = Method(
    "LeaseGrant", "/etcdserverpb.Lease/LeaseGrant", wire.LeaseGrantResponse, repeatable=True
)
LEASE_REVOKE = Method(
    "LeaseRevoke", "/etcdserverpb.Lease/LeaseRevoke", wire.LeaseRevokeResponse, repeatable=True
)
AUTHENTICATE = Method(
    "Authenticate", "/etcdserverpb.Auth/Authenticate", wire.AuthenticateResponse, repeatable=True
)
STATUS = Method("Status", "/etcdserverpb.Maintenance/Status", wire.StatusResponse, repeatable=True)
_WATCH_PATH = "/etcdserverpb.Watch/Watch"
_KEEP_ALIVE_PATH = "/etcdserverpb.Lease/LeaseKeepAlive"


def being_cancelled() -> bool:
    """Whether the running task is being cancelled.

    grpc.aio raises `CancelledError` too when a channel is closed under a call. Nobody cancelled the
    task then, and a task that took it for its own end would end without a word.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _serialize(message: Any) -> bytes:
    encoded: bytes = message.SerializeToString()
    return encoded


def parse_endpoint(text: str, *, tls: bool) -> str:
    """`host:port` from what an operator wrote; a scheme is tolerated if it is true.

    Raises:
        ValueError: no port, or a scheme that contradicts the TLS settings.
    """
    scheme, separator, rest = text.rpartition("://")
    if separator and scheme not in ("http", "https"):
        raise ValueError(f"etcd endpoint {text!r}: the scheme must be http or https")
    if separator and (scheme == "https") != tls:
        wanted = "a CA, a certificate and a key" if scheme == "https" else "no certificates"
        raise ValueError(f"etcd endpoint {text!r} calls for {wanted}")
    address = rest.rstrip("/")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"etcd endpoint {text!r} is not HOST:PORT")
    return address


class Endpoint:
    """One etcd member, as reached by one channel."""

    def __init__(self, address: str, tls: EtcdTls | None) -> None:
        self.address = address
        self._tls = tls
        self._opened: Any = None
        self._methods: dict[str, Any] = {}

    @property
    def _channel(self) -> Any:
        if self._opened is None:
            if self._tls is None:
                self._opened = grpc.aio.insecure_channel(self.address, options=_OPTIONS)
            else:
                tls = self._tls
                credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)
                self._opened = grpc.aio.secure_channel(self.address, credentials, options=_OPTIONS)
        return self._opened

    async def ready(self, timeout_s: float) -> bool:
        """Whether there is a connection, or there is one in time."""
        channel = self._channel
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    state = channel.get_state(try_to_connect=True)
                    if state is grpc.ChannelConnectivity.READY:
                        return True
                    if state in (
                        grpc.ChannelConnectivity.TRANSIENT_FAILURE,
                        grpc.ChannelConnectivity.SHUTDOWN,
                    ):
                        return False
                    await channel.wait_for_state_change(state)
        except TimeoutError:
            return False

    def unary(self, method: Method) -> Any:
        """The callable of a unary method."""
        if method.path not in self._methods:
            self._methods[method.path] = self._channel.unary_unary(
                method.path,
                request_serializer=_serialize,
                response_deserializer=method.response.FromString,
            )
        return self._methods[method.path]

    def watch(self, metadata: Any) -> Any:
        """Open a watch stream."""
        return self._stream(_WATCH_PATH, wire.WatchResponse)(metadata=metadata)

    def keep_alive(self, metadata: Any, timeout_s: float) -> Any:
        """Open a stream for one renewal of a lease."""
        stream = self._stream(_KEEP_ALIVE_PATH, wire.LeaseKeepAliveResponse)
        return stream(metadata=metadata, timeout=timeout_s)

    def _stream(self, path: str, response: Any) -> Any:
        if path not in self._methods:
            self._methods[path] = self._channel.stream_stream(
                path, request_serializer=_serialize, response_deserializer=response.FromString
            )
        return self._methods[path]

    async def close(self) -> None:
        """Close the connection; calls in flight are cancelled."""
        if self._opened is not None:
            await self._opened.close()
