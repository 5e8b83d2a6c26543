"""Time limits are separate and none is on the whole; streams never queue; withdrawn endpoints."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from llmgw.router.exchange import COMMENT, Limits
from tests.integration.router.harness import (
    LIMITS,
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

STREAMS = 150


async def test_no_stream_queues_behind_a_pool(start_engine: StartEngine) -> None:
    everyone_is_here = asyncio.Event()
    waiting = 0

    async def together(arrival: Arrival) -> None:
        nonlocal waiting
        arrival.start_events()
        arrival.event("first")
        waiting += 1
        if waiting == STREAMS:
            everyone_is_here.set()
        await everyone_is_here.wait()
        arrival.chunk(b"data: [DONE]\n\n")
        arrival.chunk(b"")

    engine = await start_engine(together)
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        answers = await asyncio.gather(*(ask(router, chat(stream=True)) for _ in range(STREAMS)))
        assert all(answer.body.endswith(b"data: [DONE]\n\n") for answer in answers)
        assert router.outstanding() == 0
    assert len(engine.arrivals) == STREAMS


async def test_a_stream_outlives_every_single_limit(start_engine: StartEngine) -> None:
    async def slowly(arrival: Arrival) -> None:
        await asyncio.sleep(0.35)
        arrival.start_events()
        for _ in range(8):
            arrival.event("token")
            await asyncio.sleep(0.1)
        arrival.chunk(b"data: [DONE]\n\n")
        arrival.chunk(b"")

    engine = await start_engine(slowly)
    limits = Limits(connect_s=0.2, first_byte_s=0.5, silence_s=0.2, comment_s=5.0)
    async with running_router(limits) as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, chat(stream=True))
    assert answer.body.count(b"token") == 8
    assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_silence_is_counted_anew_after_each_piece_and_comments_do_not_break_it(
    start_engine: StartEngine,
) -> None:
    async def stops(arrival: Arrival) -> None:
        arrival.start_events()
        arrival.event("one")
        await asyncio.Event().wait()

    engine = await start_engine(stops)
    limits = Limits(connect_s=1.0, first_byte_s=5.0, silence_s=0.5, comment_s=0.1)
    async with running_router(limits) as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, chat(stream=True))
    assert 2 <= answer.body.count(COMMENT) <= 5
    assert b'"error"' in answer.body


async def test_a_stream_silent_before_its_first_token_gets_comments(
    start_engine: StartEngine,
) -> None:
    go_on = asyncio.Event()

    async def think(arrival: Arrival) -> None:
        await go_on.wait()
        arrival.start_events()
        arrival.event("one")
        arrival.chunk(b"data: [DONE]\n\n")
        arrival.chunk(b"")

    engine = await start_engine(think)
    limits = Limits(connect_s=1.0, first_byte_s=5.0, silence_s=5.0, comment_s=0.05)
    async with running_router(limits) as router:
        router.route(engine.endpoint("r1"))
        client = await Client.connect(router)
        client.post(chat(stream=True))
        head = await client.head()
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        assert await client.chunk() == COMMENT
        assert await client.chunk() == COMMENT
        go_on.set()
        while (piece := await client.chunk()) == COMMENT:
            pass
        assert b"one" in piece
        client.close()


async def test_what_fails_after_a_comment_is_told_as_an_event_and_not_sent_again(
    start_engine: StartEngine,
) -> None:
    async def late_503(arrival: Arrival) -> None:
        await asyncio.sleep(0.2)
        arrival.send(503, b'{"error": {"message": "busy"}}')

    async def late_400(arrival: Arrival) -> None:
        await asyncio.sleep(0.2)
        arrival.send(400, b'{"error": {"message": "too\\nlong"}}')

    limits = Limits(connect_s=1.0, first_byte_s=5.0, silence_s=5.0, comment_s=0.05)
    for behaviour, words in ((late_503, b"503"), (late_400, b"too\\nlong")):
        engines = [await start_engine(behaviour) for _ in range(2)]
        async with running_router(limits) as router:
            router.route(*(engine.endpoint(f"r{i}") for i, engine in enumerate(engines)))
            answer = await ask(router, chat(stream=True))
        assert answer.whole
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert words in answer.body
        assert sum(len(engine.arrivals) for engine in engines) == 1


async def test_a_comment_never_splits_an_event(start_engine: StartEngine) -> None:
    async def in_two_parts(arrival: Arrival) -> None:
        arrival.start_events()
        arrival.chunk(b"event: x\n")
        await arrival.writer.drain()
        await asyncio.sleep(0.3)
        arrival.chunk(b"data: 1\n\n")
        arrival.chunk(b"data: [DONE]\n\n")
        arrival.chunk(b"")

    engine = await start_engine(in_two_parts)
    limits = Limits(connect_s=1.0, first_byte_s=5.0, silence_s=5.0, comment_s=0.05)
    async with running_router(limits) as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, chat(stream=True))
    assert b"event: x\ndata: 1\n\n" in answer.body


async def test_a_slow_client_holds_the_engine_back_and_is_not_its_silence(
    start_engine: StartEngine,
) -> None:
    piece = b"data: " + b"x" * 65_000 + b"\n\n"
    sent = 0

    async def flood(arrival: Arrival) -> None:
        nonlocal sent
        arrival.start_events()
        for _ in range(400):
            arrival.chunk(piece)
            await arrival.writer.drain()
            sent += 1
        arrival.chunk(b"data: [DONE]\n\n")
        arrival.chunk(b"")

    engine = await start_engine(flood)
    limits = Limits(connect_s=1.0, first_byte_s=0.4, silence_s=0.2, comment_s=5.0)
    async with running_router(limits) as router:
        router.route(engine.endpoint("r1"))
        reader, writer = await asyncio.open_connection("127.0.0.1", router.port, limit=1024)
        client = Client(reader, writer)
        client.post(chat(stream=True))
        await until(lambda: sent > 10, "the engine streams")
        await asyncio.sleep(0.6)  # three times the limit on silence, all of it the client's
        assert sent < 400
        received = 0
        while not (read := await reader.read(1 << 20)).endswith(b"0\r\n\r\n"):
            received += len(read)
        received += len(read)
        client.close()
    assert received > 400 * len(piece)


async def test_a_withdrawn_endpoint_loses_idle_connections_at_once_and_the_rest_when_done(
    start_engine: StartEngine,
) -> None:
    release = asyncio.Event()

    async def hold(arrival: Arrival) -> None:
        if arrival.json.get("hold"):
            await release.wait()
        arrival.send(200, b'{"model": "m"}')

    engine, other = await start_engine(hold), await start_engine()
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        busy = asyncio.create_task(ask(router, chat(hold=True)))
        await until(lambda: len(engine.arrivals) == 1, "one request runs")
        assert (await ask(router, chat())).status == 200
        assert engine.open == 2
        router.route(other.endpoint("r2"))
        await until(lambda: engine.open == 1, "the idle connection is closed")
        assert (await ask(router, chat())).status == 200
        assert len(other.arrivals) == 1
        metrics = (await fetch(router, "/metrics")).body.decode()
        assert 'llmgw_router_outstanding{model="m"} 1.0' in metrics
        release.set()
        assert (await busy).status == 200
        await until(lambda: engine.open == 0, "the last connection is closed")
        assert router.outstanding() == 0


async def test_an_endpoint_that_stays_keeps_its_connections(start_engine: StartEngine) -> None:
    engine, other = await start_engine(), await start_engine()
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        await ask(router, chat())
        router.route(engine.endpoint("r1", weight=5), other.endpoint("r2", priority=1))
        for _ in range(5):
            await ask(router, chat())
    assert (engine.connections, len(other.arrivals)) == (1, 0)


async def test_an_endpoint_that_moved_is_a_new_one(start_engine: StartEngine) -> None:
    engine, other = await start_engine(), await start_engine()
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        await ask(router, chat())
        router.route(other.endpoint("r1"))
        await until(lambda: engine.open == 0, "the idle connection is closed")
        assert (await ask(router, chat())).status == 200
    assert (len(engine.arrivals), len(other.arrivals)) == (1, 1)


async def test_idle_connections_are_closed_before_an_engine_would(
    start_engine: StartEngine,
) -> None:
    engine = await start_engine()
    async with running_router(LIMITS) as router:
        router.route(engine.endpoint("r1"))
        await ask(router, chat())
        assert engine.open == 1
        await until(lambda: engine.open == 0, "the idle connection is closed", within_s=4.5)
