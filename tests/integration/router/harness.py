"""A real router application on a real socket, small real engines, and clients that speak bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ha.clock import BootClock
from llmgw.domain.endpoint import Endpoint
from llmgw.kit.journal import Journal
from llmgw.router.app import BODY_BYTES_MAX, App
from llmgw.router.exchange import Limits
from llmgw.router.server import make_server, open_listener
from llmgw.router.table import make_table

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from llmgw.router.core.ejection import EjectionPolicy

DEADLINE_S = 5.0
LIMITS = Limits(connect_s=1.0, first_byte_s=5.0, silence_s=5.0, comment_s=5.0)


async def until(
    condition: Callable[[], object], what: str, *, within_s: float = DEADLINE_S
) -> None:
    """Wait for a condition."""
    try:
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 - any condition, not only events
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {within_s} s: {what}") from None


@dataclass
class Arrival:
    """A request as an engine got it; `closed` once the router's connection was seen to end."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def send(self, status: int, body: bytes, *headers: str, kind: str = "application/json") -> None:
        """Answer with a body of known length."""
        lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", f"content-length: {len(body)}"]
        self.writer.write("\r\n".join([*lines, *headers, "", ""]).encode() + body)

    def start_events(self) -> None:
        """Begin a chunked stream of events."""
        self.writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    def chunk(self, data: bytes) -> None:
        """One piece of a chunked body; an empty one ends it."""
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def event(self, text: str, model: str | None = None) -> None:
        """One token as an event."""
        name = self.json["model"] if model is None else model
        document = {"model": name, "choices": [{"delta": {"content": text}}]}
        self.chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    def reset(self) -> None:
        """Close at once."""
        self.writer.transport.abort()


async def echo(arrival: Arrival) -> None:
    """Answer with what was asked, as a stream of three tokens if that was wanted."""
    if "json" in arrival.headers.get("content-type", "") and arrival.json.get("stream"):
        arrival.start_events()
        for token in ("one", "two", "three"):
            arrival.event(token)
            await arrival.writer.drain()
        arrival.chunk(b"data: [DONE]\n\n")
        arrival.chunk(b"")
        return
    answer: dict[str, Any] = {"path": arrival.path, "bytes": len(arrival.body)}
    if "json" in arrival.headers.get("content-type", ""):
        answer["model"] = arrival.json["model"]
    arrival.send(200, json.dumps(answer).encode())


class Engine:
    """An HTTP/1.1 server with keep-alive that counts what arrives and behaves as it is told."""

    def __init__(self, behaviour: Callable[[Arrival], Awaitable[None]] = echo) -> None:
        self.behaviour = behaviour
        self.arrivals: list[Arrival] = []
        self.connections = 0
        self.open = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", self.port, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections from now on, and end those there are."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def endpoint(self, replica_id: str, **facts: Any) -> Endpoint:
        given = {"model": "m", "served_model_name": facts.get("model", "m"), "engine": "command"}
        url = f"http://127.0.0.1:{self.port}"
        return Endpoint(**(given | {"replica_id": replica_id, "url": url} | facts))

    def count(self) -> Counter[str]:
        """Arrivals per request id."""
        return Counter(arrival.headers["x-request-id"] for arrival in self.arrivals)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            while (arrival := await _read_request(reader, writer)) is not None:
                self.arrivals.append(arrival)
                await self._behave(arrival)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass  # by `stop`; asyncio's streams would report it as an error
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.transport.abort()

    async def _behave(self, arrival: Arrival) -> None:
        behaving = asyncio.ensure_future(self.behaviour(arrival))
        peeking = asyncio.ensure_future(_until_closed(arrival))
        try:
            await asyncio.wait({behaving, peeking}, return_when=asyncio.FIRST_COMPLETED)
            if behaving.done():
                behaving.result()
                with contextlib.suppress(ConnectionError):
                    await arrival.writer.drain()
        finally:
            for task in (behaving, peeking):
                task.cancel()


async def _read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Arrival | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    request_line, *lines = head[:-4].split("\r\n")
    method, path, _ = request_line.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Arrival(method, path, headers, body, reader, writer)


async def _until_closed(arrival: Arrival) -> None:
    transport = arrival.writer.transport
    while not (arrival.reader.at_eof() or transport.is_closing()):  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.01)
    arrival.closed.set()


@dataclass
class Router:
    """The application under test and where it listens."""

    app: App
    port: int
    names: dict[str, str] | None = None

    def route(self, *endpoints: Endpoint, names: Iterable[str] = ()) -> None:
        """Give it a new route table."""
        known = {name: name for name in names}
        for endpoint in endpoints:
            known |= dict.fromkeys([endpoint.model, *endpoint.aliases], endpoint.model)
        self.app.follow(make_table(known, endpoints))

    def outstanding(self) -> int:
        return sum(self.app.endpoints.outstanding().values())


@contextlib.asynccontextmanager
async def running_router(
    limits: Limits = LIMITS,
    *,
    body_bytes_max: int = BODY_BYTES_MAX,
    ejection: EjectionPolicy | None = None,
) -> AsyncGenerator[Router, None]:
    """A router application on a loopback socket."""
    app = App(
        BootClock(),
        Journal(None),
        limits=limits,
        body_bytes_max=body_bytes_max,
        ejection=ejection,
    )
    listener = open_listener("127.0.0.1", 0)
    server = make_server(app)
    # What `Server.serve` does, without the pauses of its main loop: these tests are many.
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listener])
    try:
        yield Router(app, listener.getsockname()[1])
    finally:
        for accepting in server.servers:
            accepting.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        tasks = list(server.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        app.endpoints.close()


@dataclass
class Answer:
    """What a client got; `whole` is False if the connection ended too early."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]


class Client:
    """A client's connection, in bytes: nothing is hidden, nothing pooled."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, router: Router) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", router.port, limit=1 << 26))

    def send(self, method: str, path: str, body: bytes = b"", *headers: str) -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: router", f"content-length: {len(body)}"]
        self.writer.write("\r\n".join([*lines, *headers, "", ""]).encode() + body)

    def post(self, document: object, path: str = "/v1/chat/completions", *headers: str) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send("POST", path, body, "content-type: application/json", *headers)

    async def head(self) -> Answer:
        """Status and headers."""
        async with asyncio.timeout(DEADLINE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status_line, *lines = head[:-4].split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        return Answer(int(status_line.split(" ")[1]), headers, b"")

    async def chunk(self) -> bytes:
        """The next chunk of a chunked body; empty at its end."""
        async with asyncio.timeout(DEADLINE_S):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def answer(self) -> Answer:
        """The whole answer."""
        answer = await self.head()
        try:
            if answer.headers.get("transfer-encoding") == "chunked":
                while piece := await self.chunk():
                    answer.body += piece
            else:
                async with asyncio.timeout(DEADLINE_S):
                    length = int(answer.headers.get("content-length", "0"))
                    answer.body = await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            answer.whole = False
        return answer

    def close(self) -> None:
        self.writer.transport.abort()


async def ask(
    router: Router, document: object, path: str = "/v1/chat/completions", *headers: str
) -> Answer:
    """One POST on a connection of its own."""
    client = await Client.connect(router)
    try:
        client.post(document, path, *headers)
        return await client.answer()
    finally:
        client.close()


async def fetch(router: Router, path: str, method: str = "GET") -> Answer:
    """One request without a body, on a connection of its own."""
    client = await Client.connect(router)
    try:
        client.send(method, path)
        return await client.answer()
    finally:
        client.close()


def chat(**fields: Any) -> dict[str, Any]:
    """A chat request for model `m`."""
    return {"model": "m", "messages": [{"role": "user", "content": "hello"}]} | fields
