"""One HTTP/1.1 connection to an engine: a request is written, the answer read in pieces.

Thin on purpose, for its cost is paid per token: no streams, no tasks, one timer that is armed
anew only when it fires. Guarantees: an answer that ends early is never taken for a whole one;
while the reader is busy elsewhere the engine is held back (bounded buffer) and its silence is
not counted. It does not retry, follow redirects, keep cookies or decode content.
"""

from __future__ import annotations

import asyncio
import select
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import httptools

from llmgw.router.core.retry import Failure
from llmgw.router.errors import RouterError, UpstreamError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ha.clock import Clock

BUFFER_BYTES_MAX = 262_144
HEADERS_BYTES_MAX = 65_536
_TIMER_S_MIN = 0.001
_POLL_GONE = select.POLLIN | select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


@dataclass(slots=True)
class AnswerHead:
    """Status and headers of an answer; header names are in lower case."""

    status: int
    headers: list[tuple[bytes, bytes]]

    def get(self, name: bytes) -> bytes:
        """A header's value, the first if there are several; empty if there is none."""
        return next((value for key, value in self.headers if key == name), b"")


class Connection(asyncio.Protocol):
    """A connection of the pool. One exchange at a time: `start`, `head`, `read` until empty."""

    def __init__(self, clock: Clock, on_lost: Callable[[Connection], None]) -> None:
        self._clock = clock
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._poll: select.poll | None = None
        self.closed = False
        self.idle_since_s = 0.0
        # The exchange under way.
        self._busy = False
        self._head: AnswerHead | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._headers_bytes = 0
        self._head_done = False
        self._framed = False
        self._keep_alive = False
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._paused = False
        self._complete = False
        self._error: RouterError | None = None
        # Whoever waits, and until when.
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0
        self._silent_at_s = 0.0
        self._nudge_at_s = float("inf")
        self._nudged = False

    # What a user calls.

    def start(self, request: bytes, body: bytes) -> None:
        """Write a request."""
        if self._busy or self._transport is None:
            raise AssertionError("a connection serves one exchange at a time")
        self._busy = True
        self._head = None
        self._headers = []
        self._headers_bytes = 0
        self._head_done = self._framed = self._complete = False
        self._error = None
        self._nudged = False
        self._transport.writelines((request, body))

    async def head(self, *, silence_s: float, nudge_s: float | None) -> AnswerHead | None:
        """Wait for status and headers; None after `nudge_s` without any.

        Raises:
            UpstreamError: the connection ended, the answer is malformed, or silence was too long.
        """
        while not self._head_done:
            if not await self._wait(silence_s, nudge_s) and not self._head_done:
                return None
        return self._head

    async def read(self, *, silence_s: float, nudge_s: float | None) -> bytes | None:
        """The next bytes of the body, empty at its end; None after `nudge_s` without any.

        Raises:
            UpstreamError: the connection ended too early, or silence was too long.
        """
        while not self._pieces:
            if self._complete:
                return b""
            if not await self._wait(silence_s, nudge_s) and not self._pieces:
                return None
        pieces, self._pieces = self._pieces, []
        self._pieces_bytes = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def finish(self) -> bool:
        """End the exchange; whether the connection can serve another one."""
        reusable = (
            self._complete
            and self._keep_alive
            and not self.closed
            and not self._pieces
            and self._error is None
            and self._transport is not None
            and self._transport.get_write_buffer_size() == 0
        )
        self._busy = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not reusable:
            self.close()
        return reusable

    def usable(self) -> bool:
        """Whether an idle connection is still open as far as this machine can know.

        Asks the kernel, too: a close that has arrived but was not yet handled counts.
        """
        if self.closed or self._transport is None or self._transport.is_closing():
            return False
        return self._poll is None or not self._poll.poll(0)

    def fail(self, error: RouterError) -> None:
        """Make whoever waits, or waits next, see this error."""
        if self._error is None:
            self._error = error
        self._wake()

    def close(self) -> None:
        """Close at once, dropping what is unsent: the engine learns that nobody listens."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def framed(self) -> bool:
        """Whether the answer says where it ends; else the connection's end is its end."""
        return self._framed

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        connection = transport.get_extra_info("socket")
        if connection is not None:
            self._poll = select.poll()
            self._poll.register(connection.fileno(), _POLL_GONE)

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer; when none is due, the connection is of no more use."""
        if not self._busy or self._complete:
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keep_alive = False
            if not self._complete:
                self.fail(UpstreamError(Failure.MALFORMED, f"malformed answer: {error}"))
                self.close()
        if self._pieces_bytes > BUFFER_BYTES_MAX and not self._paused and self._transport:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: the end of an unframed answer, or of a broken one."""
        self.closed = True
        if self._busy and not self._complete:
            if self._head_done and not self._framed and exc is None:
                self._complete = True
            else:
                where = "in the middle of its answer" if self._head_done else "without an answer"
                self.fail(UpstreamError(Failure.CLOSED, f"it closed the connection {where}"))
        self._wake()
        self._on_lost(self)

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer (which is dropped)."""
        if self._head_done:
            return
        self._headers_bytes += len(name) + len(value) + len(b": \r\n")
        if self._headers_bytes > HEADERS_BYTES_MAX:
            raise ValueError("headers above the limit")
        name = name.lower()
        if name in {b"content-length", b"transfer-encoding"}:
            self._framed = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Status and headers are there; an interim answer (1xx) is dropped."""
        if self._complete:
            raise ValueError("a second answer to one request")
        status = self._parser.get_status_code()
        if status == 101:  # noqa: PLR2004 - Switching Protocols, which nobody asked for
            raise ValueError("the engine switched protocols")
        if status < 200:  # noqa: PLR2004 - interim answers are 100 to 199
            self._headers = []
            self._framed = False
            return
        self._framed = self._framed or status in {204, 304}
        self._head = AnswerHead(status, self._headers)
        self._head_done = True

    def on_body(self, piece: bytes) -> None:
        """Bytes of the body."""
        self._pieces.append(piece)
        self._pieces_bytes += len(piece)

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was an interim one."""
        if self._head_done:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()

    # Waiting.

    async def _wait(self, silence_s: float, nudge_s: float | None) -> bool:
        """Wait for something to happen; False if it was only the nudge."""
        if self._error is not None:
            raise self._error
        now_s = self._clock.now_s()
        if not self._nudged:
            self._silent_at_s = now_s + silence_s
        self._nudged = False
        self._nudge_at_s = float("inf") if nudge_s is None else now_s + nudge_s
        if self._timer is None:
            self._arm(now_s)
        elif min(self._silent_at_s, self._nudge_at_s) < self._timer_due_s:
            self._timer.cancel()
            self._arm(now_s)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._error is not None and not self._pieces:
            raise self._error
        return not self._nudged

    def _arm(self, now_s: float) -> None:
        due_s = min(self._silent_at_s, self._nudge_at_s)
        self._timer_due_s = due_s
        self._timer = self._loop.call_later(max(due_s - now_s, _TIMER_S_MIN), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        now_s = self._clock.now_s()
        if now_s >= self._silent_at_s:
            late = Failure.SILENT if self._head_done else Failure.FIRST_BYTE_LATE
            self.fail(UpstreamError(late, "it was silent for too long"))
        elif now_s >= self._nudge_at_s:
            self._nudged = True
            self._wake()
        else:
            self._arm(now_s)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
