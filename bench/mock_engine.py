"""An engine that costs next to nothing: fixed answers, fixed pace.

    python -m bench.mock_engine PORT

POST with `"stream": true` in the body: CHUNKS server-sent events, one each INTERVAL_S. Anything
else: one JSON body of about 1.5 KB.
"""

from __future__ import annotations

import asyncio
import json
import sys

import httptools

CHUNKS = 100
INTERVAL_S = 0.01
TEXT = "word " * 250
BODY = json.dumps(
    {
        "id": "mock",
        "object": "chat.completion",
        "model": "mock",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}}],
    }
).encode()
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"mock","object":"chat.completion.chunk","model":"mock",'
    b'"choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
)
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Engine(asyncio.Protocol):
    """One connection, with keep-alive."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what TCP servers give
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._left = 0

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        stream = b'"stream"' in self._body
        self._body = b""
        if not stream:
            self._transport.write(WHOLE)
            return
        self._transport.write(HEAD)
        self._left = CHUNKS
        self._tick()

    def _tick(self) -> None:
        if self._transport.is_closing():
            return
        if self._left == 0:
            self._transport.write(DONE)
            return
        self._left -= 1
        self._transport.write(CHUNK)
        asyncio.get_running_loop().call_later(INTERVAL_S, self._tick)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(
        Engine, "127.0.0.1", int(sys.argv[1]), backlog=1024
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
