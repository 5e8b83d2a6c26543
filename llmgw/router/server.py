"""The HTTP server: uvicorn, taught what a half-closed connection means.

A client that sends its request and then closes only its writing side still wants the answer, yet
uvicorn takes the end of input for leaving. On the wire a half-close and a close look the same; the
difference shows only when something is sent: a peer that is gone answers with a reset. So at the
end of input the connection is kept, and probed with bytes that belong to the answer in any case:
the first characters of the status line (`HTTP/1.1 ` begins every answer), or, within a chunked
body, zeros in front of the next chunk's size. A reset then ends the request well within a second,
and a client that is still there sees nothing unusual. An answer of known length cannot be probed
so; there its own bytes do it.

Malformed requests are answered in the form of OpenAI's API, too. The access log is off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from llmgw.router.errors import error_body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmgw.router.app import App

GRACE_S = 10
BACKLOG = 2048
KEEP_ALIVE_S = 75
PROBE_INTERVALS_S = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 10.0, 30.0)
_PREFIX = b"HTTP/1.1 "
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Output:
    """The transport as one answer sees it.

    The head waits for the first piece of the body, which the router always sends right after it,
    and both leave in one system call. Probes send the head's beginning ahead of it.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._probed = 0
        self._head: bytes | None = None
        self._body = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def probe(self, *, chunked: bool) -> None:
        """Send a byte that belongs to the answer in any case, if there is one."""
        if self._head is None and self._probed < len(_PREFIX):
            self._transport.write(_PREFIX[self._probed : self._probed + 1])
            self._probed += 1
        elif self._body and chunked:
            self._transport.write(b"0")

    def write(self, data: bytes) -> None:
        """What uvicorn writes: perhaps an interim answer, then a head, then pieces of the body."""
        if self._body or data == _CONTINUE:
            self._transport.write(data)
        elif self._head is None:
            self._head = data[self._probed :]
        else:
            self._body = True
            self._transport.writelines((self._head, data))


class Protocol(HttpToolsProtocol):
    """One client's connection."""

    _probe_timer: asyncio.TimerHandle | None = None

    def on_headers_complete(self) -> None:
        """A request begins; whoever answers a POST always sends a body."""
        super().on_headers_complete()
        if self.scope["method"] == "POST":
            self.cycle.transport = cast("asyncio.Transport", _Output(self.transport))

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client will send no more; keep the connection if it may wait for an answer."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or cycle.more_body:
            return None
        cycle.keep_alive = False
        if not self.pipeline:
            self._probe(0)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left, or the connection was closed here."""
        if self._probe_timer is not None:
            self._probe_timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        body = error_body(msg, kind="invalid_request_error", param=None, code="invalid_http")
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()

    def _probe(self, number: int) -> None:
        cycle = self.cycle
        if cycle.response_complete or self.transport.is_closing():
            return
        output = cast("object", cycle.transport)
        if isinstance(output, _Output):
            output.probe(chunked=bool(cycle.chunked_encoding))
        if number + 1 < len(PROBE_INTERVALS_S):
            loop = asyncio.get_running_loop()
            self._probe_timer = loop.call_later(
                PROBE_INTERVALS_S[number + 1], self._probe, number + 1
            )


class Server(uvicorn.Server):
    """uvicorn, stopped by its owner instead of by signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    def stop(self) -> None:
        """Accept no more; requests under way get `GRACE_S`."""
        self.should_exit = True

    def stop_now(self) -> None:
        """End without waiting."""
        self.should_exit = self.force_exit = True


def make_server(app: App, *, grace_s: int = GRACE_S) -> Server:
    """A server for the router's application; give it sockets with `serve`."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=grace_s,
    )
    return Server(config)


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        OSError: the address cannot be used.
    """
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    # With the protocol named, event loops see TCP and turn off Nagle's algorithm; without, an
    # answer in two writes takes 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
