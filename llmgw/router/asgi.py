"""The router's side of ASGI: its types, plain answers, and a client that may leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias

from llmgw.router.errors import ClientLeftError, too_large

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

JSON_TYPE = (b"content-type", b"application/json")


class Client:
    """Whoever asked: reads the request, writes the answer, notices when they leave."""

    def __init__(self, receive: Receive, send: Send, request_id: bytes) -> None:
        self._receive = receive
        self._send = send
        self.request_id = request_id
        self._watch: asyncio.Task[None] | None = None
        self.status = 0
        self.left = False

    @property
    def begun(self) -> bool:
        """Whether any byte of an answer was sent."""
        return self.status != 0

    async def read_body(self, headers: Headers, body_bytes_max: int) -> bytes:
        """The whole request body.

        Raises:
            RequestError: 413; the rest was not read into memory.
            ClientLeftError: the client left before the body was whole.
        """
        for name, value in headers:
            if name == b"content-length" and int(value) > body_bytes_max:
                raise too_large(body_bytes_max)
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.left = True
                raise ClientLeftError("the client left before its request was whole")
            piece = message.get("body", b"")
            size += len(piece)
            if size > body_bytes_max:
                raise too_large(body_bytes_max)
            if not message.get("more_body", False):
                return piece if not pieces else b"".join((*pieces, piece))
            pieces.append(piece)

    def watch(self, on_left: Callable[[], None]) -> asyncio.Task[None]:
        """From now on call `on_left` when the client leaves; ends then, or is cancelled."""
        self._watch = asyncio.create_task(self._until_left(on_left))
        return self._watch

    def unwatch(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.cancel()

    async def start(self, status: int, headers: Headers) -> None:
        """Send status and headers."""
        self.status = status
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, (b"x-request-id", self.request_id)],
            }
        )

    async def write(self, piece: bytes) -> None:
        """Send a piece of the body; waits while the client is slow."""
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, piece: bytes = b"") -> None:
        """Send the last piece of the body."""
        await self._send({"type": "http.response.body", "body": piece, "more_body": False})

    async def answer(self, status: int, body: bytes, headers: Headers = (JSON_TYPE,)) -> None:
        """Send a whole answer."""
        await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self.end(body)

    async def _until_left(self, on_left: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
        on_left()
