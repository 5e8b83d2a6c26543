"""The gRPC link between agents and control planes: both ends of one bidirectional stream.

What this module decides: channel and server options (with the traps that were measured), how a
standby names the leader, and who the peer is (the verified certificate's common name). It does
not decide who may lead, register or command.

One writer per stream: `send` must never be called by two tasks at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import grpc
import grpc.aio

from llmgw.wire import agent_pb2 as pb
from llmgw.wire.convert import down_from_wire, down_to_wire, up_from_wire, up_to_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from llmgw.domain.messages import Down, Up

SERVICE = "llmgw.agent.v1.AgentService"
METHOD = f"/{SERVICE}/Connect"
MESSAGE_BYTES_MAX = 64 << 20

_LEADER_ID = "llmgw-leader-id"
_LEADER_ADDRESS = "llmgw-leader-address"
_TERM = "llmgw-term"
_RETRY_AFTER = "llmgw-retry-after-ms"
_STATUS_WAIT_S = 1.0

# keepalive_timeout alone noticed a stopped peer after 60 s: ping_timeout is what bounds it. It is
# the second net; heartbeats of the application are the first.
_KEEPALIVE = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
_SIZES = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
]
# Without the raised pending limits 5,000 agents at once lost a fifth of their registrations.
SERVER_OPTIONS = [
    *_KEEPALIVE,
    *_SIZES,
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.server.max_pending_requests", 20_000),
    ("grpc.server.max_pending_requests_hard_limit", 40_000),
    ("grpc.so_reuseport", 0),
]
# A subchannel shared between channels would bring every dial back to the address that refused.
CHANNEL_OPTIONS = [
    *_KEEPALIVE,
    *_SIZES,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


class RefusalKind(Enum):
    """Why a stream is refused."""

    UNAVAILABLE = "unavailable"
    INVALID_ARGUMENT = "invalid_argument"
    PERMISSION_DENIED = "permission_denied"
    UNAUTHENTICATED = "unauthenticated"


_CODES = {
    RefusalKind.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    RefusalKind.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalKind.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    RefusalKind.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
}
_KINDS = {code: kind for kind, code in _CODES.items()}


class RefusedError(Exception):
    """A stream was refused or ended with a reason. The leader, if known, is named."""

    def __init__(
        self,
        kind: RefusalKind,
        reason: str,
        *,
        leader_address: str = "",
        term: int = 0,
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.leader_address = leader_address
        self.term = term
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Hello:
    """Initial metadata of an accepted stream: who leads, and its term."""

    leader_id: str
    term: int


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM contents: the CA that is trusted, and this side's certificate and key."""

    ca: bytes
    certificate: bytes
    key: bytes


# ---- the control plane's end -----------------------------------------------------------------


class NodeStream(Protocol):
    """One agent's stream, as the control plane holds it."""

    @property
    def peer(self) -> str:
        """Address of the peer, for people."""
        ...

    @property
    def authenticated(self) -> bool:
        """Whether the listener verifies client certificates at all."""
        ...

    @property
    def common_name(self) -> str | None:
        """Common name of the verified client certificate, if there is one."""
        ...

    async def hello(self, hello: Hello) -> None:
        """Send initial metadata; before anything else."""
        ...

    async def receive(self) -> Up | None:
        """The next message; None when the agent closed the stream.

        Raises:
            MalformedMessageError: a message without its parts.
        """
        ...

    async def send(self, down: Down) -> None:
        """Write one message; one task only."""
        ...


class _GrpcNodeStream:
    def __init__(self, context: Any, *, authenticated: bool) -> None:
        self._context = context
        self.authenticated = authenticated
        self.peer: str = context.peer()

    @property
    def common_name(self) -> str | None:
        # peer_identities() would give the SAN when there is one; the common name decides.
        names = self._context.auth_context().get("x509_common_name", [])
        return names[0].decode("utf-8", "replace") if names else None

    async def hello(self, hello: Hello) -> None:
        await self._context.send_initial_metadata(
            ((_LEADER_ID, hello.leader_id), (_TERM, str(hello.term)))
        )

    async def receive(self) -> Up | None:
        message = await self._context.read()
        return None if message is grpc.aio.EOF else up_from_wire(message)

    async def send(self, down: Down) -> None:
        await self._context.write(down_to_wire(down))


class AgentListener:
    """Accepts agent streams and hands each to a handler.

    The handler runs for the life of the stream: it returns to close it, or raises `RefusedError`
    to close it with a status that names the leader.
    """

    def __init__(
        self, handler: Callable[[NodeStream], Awaitable[None]], *, tls: TlsFiles | None
    ) -> None:
        self._handler = handler
        self._tls = tls
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        method = grpc.stream_stream_rpc_method_handler(
            self._connect,
            request_deserializer=pb.Up.FromString,
            response_serializer=pb.Down.SerializeToString,
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Connect": method}),)
        )

    async def start(self, address: str) -> int:
        """Listen on `host:port`; returns the bound port.

        Raises:
            OSError: the address cannot be bound.
        """
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(address)
            else:
                credentials = grpc.ssl_server_credentials(
                    [(self._tls.key, self._tls.certificate)],
                    root_certificates=self._tls.ca,
                    require_client_auth=True,
                )
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        await self._server.start()
        return int(port)

    async def stop(self, grace_s: float) -> None:
        """Stop accepting; streams still open after `grace_s` are cut. Waits the whole grace."""
        await self._server.stop(grace_s)

    async def _connect(self, _requests: object, context: Any) -> None:
        try:
            await self._handler(_GrpcNodeStream(context, authenticated=self._tls is not None))
        except RefusedError as refused:
            await context.abort(
                _CODES[refused.kind],
                refused.reason,
                trailing_metadata=(
                    (_LEADER_ADDRESS, refused.leader_address),
                    (_TERM, str(refused.term)),
                    (_RETRY_AFTER, str(int(refused.retry_after_s * 1000))),
                ),
            )


# ---- the agent's end -------------------------------------------------------------------------


class LeaderStream(Protocol):
    """One stream to a control plane, as the agent holds it."""

    async def hello(self) -> Hello:
        """Wait for the leader's id and term.

        Raises:
            RefusedError: this control plane does not lead, or does not want this node.
        """
        ...

    async def send(self, up: Up) -> None:
        """Write one message; one task only.

        Raises:
            RefusedError: the stream is closed.
        """
        ...

    async def receive(self) -> Down | None:
        """The next message; None when the stream was closed without a reason.

        Raises:
            RefusedError: the stream was closed with a reason.
            MalformedMessageError: a message without its parts.
        """
        ...

    async def close(self) -> None:
        """Close stream and connection; safe to call twice."""
        ...


class Dialer(Protocol):
    """Opens streams to one address each."""

    def open(self, address: str, server_name: str) -> LeaderStream:
        """Dial `ip:port`; with TLS, `server_name` is what the certificate must name."""
        ...


class GrpcDialer:
    """Dials with a channel of its own for every stream."""

    def __init__(self, *, tls: TlsFiles | None) -> None:
        self._tls = tls

    def open(self, address: str, server_name: str) -> LeaderStream:
        """Dial `ip:port`; nothing is awaited yet."""
        if self._tls is None:
            channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(
                self._tls.ca, self._tls.key, self._tls.certificate
            )
            named = [*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", server_name)]
            channel = grpc.aio.secure_channel(address, credentials, options=named)
        return _GrpcLeaderStream(channel)


class _GrpcLeaderStream:
    def __init__(self, channel: Any) -> None:
        self._channel = channel
        connect = channel.stream_stream(
            METHOD,
            request_serializer=pb.Up.SerializeToString,
            response_deserializer=pb.Down.FromString,
        )
        self._call = connect()

    async def hello(self) -> Hello:
        try:
            metadata = dict(await self._call.initial_metadata())
        except grpc.aio.AioRpcError:
            metadata = {}
        if _TERM not in metadata or _LEADER_ID not in metadata:
            # The status that says why follows the metadata: cancelled at once, the call would
            # now and then lose it, and the leader's address with it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STATUS_WAIT_S):
                    await self._call.code()
            self._call.cancel()
            raise await self._refusal()
        return Hello(str(metadata[_LEADER_ID]), int(metadata[_TERM]))

    async def send(self, up: Up) -> None:
        try:
            await self._call.write(up_to_wire(up))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise await self._refusal() from error

    async def receive(self) -> Down | None:
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise await self._refusal() from error
        if message is grpc.aio.EOF:
            if await self._call.code() is grpc.StatusCode.OK:
                return None
            raise await self._refusal()
        return down_from_wire(message)

    async def close(self) -> None:
        self._call.cancel()
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self._channel.close()

    async def _refusal(self) -> RefusedError:
        code = await self._call.code()
        trailing = dict(await self._call.trailing_metadata() or ())
        return RefusedError(
            _KINDS.get(code, RefusalKind.UNAVAILABLE),
            await self._call.details() or code.name,
            leader_address=str(trailing.get(_LEADER_ADDRESS, "")),
            term=int(trailing.get(_TERM, 0)),
            retry_after_s=int(trailing.get(_RETRY_AFTER, 0)) / 1000,
        )
