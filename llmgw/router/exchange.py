"""One request through the router: an endpoint is chosen, asked, and its answer passed on.

Guarantees: at most `ATTEMPTS_MAX` attempts, and none after a byte went to the client; the
engine's connection is closed at once when the client leaves; the endpoint's count of outstanding
requests is given back on every way out. A stream that breaks ends with an error event and
`data: [DONE]`; a silent one is kept alive with comments, from before its first byte on: such a
comment commits the answer to status 200, so what fails later is told as an error event.
There is no limit on the whole.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.router.core.ejection import Verdict
from llmgw.router.core.naming import AnswerNames, Lines
from llmgw.router.core.retry import Failure, may_retry, verdict_on_status
from llmgw.router.errors import (
    ClientLeftError,
    UpstreamError,
    error_body,
    not_running,
    upstream_answer,
)
from llmgw.router.headers import for_client

if TYPE_CHECKING:
    from collections.abc import Callable

    from ha.clock import Clock
    from llmgw.router.asgi import Client
    from llmgw.router.connection import AnswerHead, Connection
    from llmgw.router.endpoints import Attempt, Endpoints, EndpointState
    from llmgw.router.metrics import Metrics

WHOLE_ANSWER_BYTES_MAX = 16 << 20
ERROR_BYTES_MAX = 65_536
COMMENT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
_DONE_TAIL_BYTES = 64
_EVENTS = b"text/event-stream"
_EVENT_HEADERS = ((b"content-type", _EVENTS), (b"cache-control", b"no-cache"))
_SHOWN_ERROR_LENGTH_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Limits:
    """All in seconds. `silence_s` is between two bytes; nothing limits the whole."""

    connect_s: float = 5.0
    first_byte_s: float = 600.0
    silence_s: float = 300.0
    comment_s: float = 15.0


@dataclass(frozen=True, slots=True)
class Call:
    """A request as the router understood it.

    `request` makes head and body for one endpoint. `ends_with_done`: a stream of this route is
    whole only with `data: [DONE]`.
    """

    model: str
    asked: str
    stream: bool
    ends_with_done: bool
    request: Callable[[EndpointState], tuple[bytes, bytes]]


class Exchange:
    """The life of one request after it was read."""

    def __init__(
        self,
        call: Call,
        client: Client,
        *,
        endpoints: Endpoints,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._call = call
        self._client = client
        self._endpoints = endpoints
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._connection: Connection | None = None
        self._events = False
        self._boundary = True
        self._asked_s = 0.0
        self.replica_id = ""

    async def run(self) -> None:
        """Answer the client.

        Raises:
            RequestError: nothing was sent yet, and this is to be.
            ClientLeftError: the client left.
            UpstreamError: the answer broke after it had begun; the client was told if possible.
        """
        gone = self._client.watch(self._on_left)
        try:
            await self._attempts(gone)
        except (UpstreamError, asyncio.CancelledError) as error:
            broken = (
                error
                if isinstance(error, UpstreamError)
                else UpstreamError(Failure.CLOSED, "the router is shutting down")
            )
            if not self._client.begun:
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise upstream_answer(broken) from error
            await self._tell(broken)
            raise
        finally:
            self._client.unwatch()

    async def _attempts(self, gone: asyncio.Task[None]) -> None:
        tried: list[str] = []
        failed: UpstreamError | None = None
        while True:
            attempt = self._endpoints.take(self._call.model, without=tried)
            if attempt is None:
                raise failed or not_running(self._call.model)
            self.replica_id = attempt.state.endpoint.replica_id
            tried.append(self.replica_id)
            try:
                await self._attempt(attempt, gone)
            except UpstreamError as error:
                attempt.judge(Verdict.FAILURE)
                begun = self._client.begun
                if not may_retry(error.failure, attempts=len(tried), answer_begun=begun):
                    raise
                failed = error
            else:
                return
            finally:
                attempt.end()

    async def _attempt(self, attempt: Attempt, gone: asyncio.Task[None]) -> None:
        pool = attempt.state.pool
        connection = pool.take_idle() or await self._connect(attempt.state, gone)
        try:
            if self._client.left:
                raise ClientLeftError("the client left")
            self._connection = connection
            self._asked_s = self._clock.now_s()
            connection.start(*self._call.request(attempt.state))
            head = await self._head(connection)
            if head.status == 503:  # noqa: PLR2004 - Service Unavailable
                raise UpstreamError(Failure.UNAVAILABLE, "it answered 503")
            verdict = verdict_on_status(head.status)
            if attempt.probe:
                attempt.judge(verdict)
                verdict = Verdict.NONE
            await self._relay(connection, head, attempt.state)
            if verdict is not Verdict.NONE:
                attempt.judge(verdict)
        finally:
            self._connection = None
            pool.give_back(connection)

    async def _connect(self, state: EndpointState, gone: asyncio.Task[None]) -> Connection:
        connecting = asyncio.create_task(state.pool.connect(self._limits.connect_s))
        try:
            await asyncio.wait({connecting, gone}, return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():
                return connecting.result()
            raise ClientLeftError("the client left")
        finally:
            connecting.cancel()

    async def _head(self, connection: Connection) -> AnswerHead:
        nudge_s = self._limits.comment_s if self._call.stream else None
        while True:
            head = await connection.head(silence_s=self._limits.first_byte_s, nudge_s=nudge_s)
            if head is not None:
                return head
            await self._comment()

    async def _relay(self, connection: Connection, head: AnswerHead, state: EndpointState) -> None:
        served = state.endpoint.served_model_name
        names = None if served == self._call.asked else AnswerNames(served, self._call.asked)
        kind = head.get(b"content-type").lower()
        encoded = head.get(b"content-encoding").lower() not in {b"", b"identity"}
        if head.status >= 400:  # noqa: PLR2004 - 4xx and 5xx are errors
            await self._relay_error(connection, head)
        elif not 200 <= head.status < 300:  # noqa: PLR2004 - 2xx is success
            raise UpstreamError(Failure.MALFORMED, f"it answered {head.status}")
        elif encoded:
            await self._relay_bytes(connection, head, Lines(None), b"")
        elif kind.startswith(_EVENTS):
            await self._relay_events(connection, head, Lines(names))
        elif kind.startswith(b"application/json"):
            await self._relay_json(connection, head, names)
        else:
            await self._relay_bytes(connection, head, None, b"")

    async def _relay_events(self, connection: Connection, head: AnswerHead, lines: Lines) -> None:
        client, clock = self._client, self._clock
        observe = self._metrics.between(self._call.model)
        silence_s, last_s = self._limits.first_byte_s, 0.0
        tail = b""
        while True:
            piece = await connection.read(silence_s=silence_s, nudge_s=self._limits.comment_s)
            if piece is None:
                await self._comment()
                continue
            if not piece:
                break
            now_s = clock.now_s()
            if last_s:
                observe(now_s - last_s)
            else:
                self._metrics.first_byte(self._call.model, now_s - self._asked_s)
                silence_s = self._limits.silence_s
                await self._start_events(head)
            last_s = now_s
            piece = lines.feed(piece)
            if piece:
                await client.write(piece)
                tail = (tail + piece[-_DONE_TAIL_BYTES:])[-_DONE_TAIL_BYTES:]
                self._boundary = piece.endswith((b"\n\n", b"\r\n\r\n"))
        rest = lines.finish()
        whole = connection.framed or not self._call.ends_with_done or b"[DONE]" in tail + rest
        if not whole:
            raise UpstreamError(Failure.CLOSED, "it closed the connection before [DONE]")
        await self._start_events(head)
        await client.end(rest)

    async def _relay_json(
        self, connection: Connection, head: AnswerHead, names: AnswerNames | None
    ) -> None:
        body = await self._collect(connection, WHOLE_ANSWER_BYTES_MAX)
        if len(body) > WHOLE_ANSWER_BYTES_MAX:
            await self._relay_bytes(connection, head, None if names is None else Lines(names), body)
            return
        if names is not None:
            body = names.rename(body)
        if self._client.begun:
            raise UpstreamError(Failure.MALFORMED, "it answered a stream request with one body")
        await self._client.answer(head.status, body, for_client(head.headers))

    async def _relay_bytes(
        self, connection: Connection, head: AnswerHead, lines: Lines | None, begin: bytes
    ) -> None:
        """Pass on a body that is neither events nor short JSON; `begin` was read already."""
        if self._client.begun:
            raise UpstreamError(Failure.MALFORMED, "it answered a stream request with one body")
        headers = for_client(head.headers)
        length = head.get(b"content-length")
        if length and lines is None:
            headers.append((b"content-length", length))
        piece: bytes | None = begin
        if not begin:
            piece = await connection.read(silence_s=self._limits.first_byte_s, nudge_s=None)
            self._metrics.first_byte(self._call.model, self._clock.now_s() - self._asked_s)
        await self._client.start(head.status, headers)
        while piece:
            await self._client.write(piece if lines is None else lines.feed(piece))
            piece = await connection.read(silence_s=self._limits.silence_s, nudge_s=None)
        await self._client.end(b"" if lines is None else lines.finish())

    async def _relay_error(self, connection: Connection, head: AnswerHead) -> None:
        """Pass on an engine's error, in the form that clients of OpenAI's API expect."""
        body = (await self._collect(connection, ERROR_BYTES_MAX))[:ERROR_BYTES_MAX]
        if not _is_error(body):
            text = body.decode("utf-8", "replace")[:_SHOWN_ERROR_LENGTH_MAX]
            kind = "upstream_error" if head.status >= 500 else "invalid_request_error"  # noqa: PLR2004 - 5xx
            message = f"The engine answered {head.status}: {text}"
            body = error_body(message, kind=kind, param=None, code="upstream_error")
        if self._client.begun:
            await self._end_with_event(body)
            return
        headers = [
            header
            for header in for_client(head.headers)
            if header[0] not in {b"content-type", b"content-encoding"}
        ]
        headers.append((b"content-type", b"application/json"))
        await self._client.answer(head.status, body, headers)

    async def _collect(self, connection: Connection, bytes_max: int) -> bytes:
        """The body, or a little more than `bytes_max` of it."""
        pieces: list[bytes] = []
        size = 0
        silence_s = self._limits.first_byte_s
        nudge_s = self._limits.comment_s if self._client.begun else None
        while size <= bytes_max:
            piece = await connection.read(silence_s=silence_s, nudge_s=nudge_s)
            if piece is None:
                await self._comment()
                continue
            if not piece:
                break
            if not pieces:
                self._metrics.first_byte(self._call.model, self._clock.now_s() - self._asked_s)
                silence_s = self._limits.silence_s
            pieces.append(piece)
            size += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _start_events(self, head: AnswerHead | None) -> None:
        if not self._client.begun:
            self._events = True
            if head is None:
                await self._client.start(200, _EVENT_HEADERS)
            else:
                await self._client.start(head.status, for_client(head.headers))

    async def _comment(self) -> None:
        """Show a waiting client that its stream lives."""
        await self._start_events(None)
        if self._boundary:
            await self._client.write(COMMENT)

    async def _tell(self, error: UpstreamError) -> None:
        """End a stream that broke; anything else is cut, so that it cannot pass for whole."""
        if self._events:
            await self._end_with_event(upstream_answer(error).body)

    async def _end_with_event(self, body: bytes) -> None:
        begin = b"" if self._boundary else b"\n"
        await self._client.end(begin + b"data: " + body.replace(b"\n", b" ") + b"\n\n" + DONE)

    def _on_left(self) -> None:
        if self._connection is not None:
            self._connection.fail(ClientLeftError("the client left"))


def _is_error(body: bytes) -> bool:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and isinstance(document.get("error"), dict)
