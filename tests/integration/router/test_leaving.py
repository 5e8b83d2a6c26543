"""Clients that leave: the engine learns of it within a second, and nobody else is blamed."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING

import pytest

from llmgw.router.exchange import Limits
from tests.integration.router.harness import (
    Arrival,
    Client,
    ask,
    chat,
    fetch,
    running_router,
    until,
)

if TYPE_CHECKING:
    from tests.integration.router.conftest import StartEngine
    from tests.integration.router.harness import Engine, Router

LEFT_WITHIN_S = 1.0


async def silent(_arrival: Arrival) -> None:
    """An engine that reads the request and does not answer."""
    await asyncio.Event().wait()


async def one_token(arrival: Arrival) -> None:
    """An engine that streams one token and then thinks for ever."""
    arrival.start_events()
    arrival.event("one")
    await asyncio.Event().wait()


async def half_a_body(arrival: Arrival) -> None:
    """An engine whose plain answer stops in the middle."""
    arrival.writer.write(
        b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{"model'
    )
    await asyncio.Event().wait()


@pytest.mark.parametrize("leave", ["close", "reset"])
@pytest.mark.parametrize(
    ("behaviour", "stream"),
    [(silent, True), (one_token, True), (silent, False), (half_a_body, False)],
)
async def test_the_engine_sees_the_close(
    start_engine: StartEngine, leave: str, behaviour: object, *, stream: bool
) -> None:
    engine = await start_engine(behaviour)
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        client = await Client.connect(router)
        client.post(chat(stream=stream))
        await until(lambda: engine.arrivals, "the engine has the request")
        if behaviour is one_token:
            await client.head()
            await client.chunk()
        if leave == "reset":
            client.close()
        else:
            client.writer.close()
        await until(
            engine.arrivals[0].closed.is_set, "the engine sees the close", within_s=LEFT_WITHIN_S
        )
        await until(lambda: router.outstanding() == 0, "nothing is outstanding")
        metrics = (await fetch(router, "/metrics")).body.decode()
    assert 'llmgw_router_requests_total{code="499",model="m"} 1.0' in metrics
    assert 'llmgw_router_endpoints_ejected{model="m"} 0.0' in metrics


async def test_leaving_while_the_connection_is_made_frees_everything(
    start_engine: StartEngine,
) -> None:
    engine = await start_engine()
    limits = Limits(connect_s=30.0)
    async with running_router(limits) as router:
        # A listener whose queue is full and never emptied answers nothing: connecting hangs.
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(full.getsockname())
            port = full.getsockname()[1]
            router.route(engine.endpoint("r1", url=f"http://127.0.0.1:{port}"))
            client = await Client.connect(router)
            client.post(chat())
            await until(lambda: router.outstanding() == 1, "the router connects")
            client.writer.close()
            await until(
                lambda: router.outstanding() == 0, "the router gives up", within_s=LEFT_WITHIN_S
            )
            for filler in fillers:
                filler.close()
    assert not engine.arrivals


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("when", ["at once", "after the first token"])
async def test_a_half_close_is_not_leaving(
    start_engine: StartEngine, when: str, *, stream: bool
) -> None:
    async def slow(arrival: Arrival) -> None:
        if stream:
            arrival.start_events()
            arrival.event("one")
        await asyncio.sleep(0.7)
        if not stream:
            arrival.send(200, json.dumps({"model": "m", "text": "whole"}).encode())
            return
        arrival.event("two")
        arrival.chunk(b"data: [DONE]\n\n")
        arrival.chunk(b"")

    engine = await start_engine(slow)
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        client = await Client.connect(router)
        client.post(chat(stream=stream))
        await until(lambda: engine.arrivals, "the engine has the request")
        if when == "after the first token" and stream:
            raw = await client.reader.readuntil(b"one")
        else:
            raw = b""
        client.writer.write_eof()
        raw += await client.reader.read(-1)
        client.close()
        await until(lambda: router.outstanding() == 0, "nothing is outstanding")
    assert raw.startswith(b"HTTP/1.1 200 OK\r\n")
    assert raw.count(b"HTTP/1.1") == 1
    assert (b"[DONE]" if stream else b"whole") in raw
    assert not stream or _chunks_are_well_formed(raw)
    assert not engine.arrivals[0].closed.is_set()


async def test_a_client_that_leaves_after_a_half_close_is_noticed(
    start_engine: StartEngine,
) -> None:
    engine = await start_engine(silent)
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        client = await Client.connect(router)
        client.post(chat())
        await until(lambda: engine.arrivals, "the engine has the request")
        client.writer.write_eof()
        client.close()
        await until(
            engine.arrivals[0].closed.is_set, "the engine sees the close", within_s=LEFT_WITHIN_S
        )


async def test_a_client_that_leaves_in_the_middle_of_its_request_reaches_no_engine(
    start_engine: StartEngine,
) -> None:
    engine = await start_engine()
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        client = await Client.connect(router)
        client.writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: r\r\ncontent-length: 50\r\n\r\n{"
        )
        await client.writer.drain()
        client.writer.close()
        await until(lambda: _counted(router, "other", 499), "the request is counted")
        assert (await ask(router, chat())).status == 200
    assert len(engine.arrivals) == 1


async def test_leaving_many_times_ejects_nobody(start_engine: StartEngine) -> None:
    engine = await start_engine(silent)
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        for _ in range(10):
            await _leave_early(router, engine)
        assert router.app.endpoints.ejected() == {"m": 0}
        assert router.outstanding() == 0


async def _leave_early(router: Router, engine: Engine) -> None:
    known = len(engine.arrivals)
    client = await Client.connect(router)
    client.post(chat(stream=True))
    await until(lambda: len(engine.arrivals) > known, "the engine has the request")
    client.close()
    await until(engine.arrivals[-1].closed.is_set, "the engine sees the close")
    await until(lambda: router.outstanding() == 0, "nothing is outstanding")


def _counted(router: Router, model: str, code: int) -> bool:
    labels = {"model": model, "code": str(code)}
    value = router.app.metrics.registry.get_sample_value("llmgw_router_requests_total", labels)
    return bool(value)


def _chunks_are_well_formed(raw: bytes) -> bool:
    rest = raw.partition(b"\r\n\r\n")[2]
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if rest[length : length + 2] != b"\r\n":
            return False
        rest = rest[length + 2 :]
        if length == 0:
            return not rest
    return False
