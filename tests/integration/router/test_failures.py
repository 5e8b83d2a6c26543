"""Engines that fail: what may be sent again, what the client is told, who is ejected."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from llmgw.router.core.ejection import EjectionPolicy
from llmgw.router.exchange import Limits
from tests.integration.router.harness import (
    Answer,
    Arrival,
    Engine,
    ask,
    chat,
    running_router,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.integration.router.conftest import StartEngine

QUICK = Limits(connect_s=1.0, first_byte_s=0.3, silence_s=0.3, comment_s=5.0)


async def reset(arrival: Arrival) -> None:
    """Read the body, then reset."""
    arrival.reset()


async def close(arrival: Arrival) -> None:
    """Read the body, then close politely."""
    arrival.writer.close()


async def answer_500(arrival: Arrival) -> None:
    """Fail."""
    arrival.send(500, b"boom", kind="text/plain")


async def answer_503(arrival: Arrival) -> None:
    """Be busy."""
    arrival.send(503, b"{}", "retry-after: 1")


async def token_then_reset(arrival: Arrival) -> None:
    """Send one token, then reset."""
    if not arrival.json.get("stream"):
        arrival.writer.write(
            b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"mo'
        )
    else:
        arrival.start_events()
        arrival.event("one")
    await arrival.writer.drain()
    await asyncio.sleep(0.1)
    arrival.reset()


async def be_silent(_arrival: Arrival) -> None:
    """Say nothing until the limit."""
    await asyncio.Event().wait()


async def talk_nonsense(arrival: Arrival) -> None:
    """Answer with what is no HTTP."""
    arrival.writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")


async def talk_endlessly(arrival: Arrival) -> None:
    """Answer with headers that do not end."""
    arrival.writer.write(b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 20_000)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refused_connection_is_tried_elsewhere(
    start_engine: StartEngine, *, stream: bool
) -> None:
    healthy, dead = await start_engine(), await start_engine()
    dead_endpoint = dead.endpoint("dead")
    await dead.stop()
    async with running_router(QUICK) as router:
        router.route(dead_endpoint, healthy.endpoint("healthy"))
        answers = [await ask(router, chat(stream=stream)) for _ in range(8)]
    assert [answer.status for answer in answers] == [200] * 8
    assert len(healthy.arrivals) == 8


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("behaviour", "status"),
    [
        (reset, 502),
        (close, 502),
        (answer_500, 500),
        (be_silent, 504),
        (talk_nonsense, 502),
        (talk_endlessly, 502),
    ],
)
async def test_what_may_have_run_is_never_sent_again(
    start_engine: StartEngine,
    behaviour: Callable[[Arrival], Awaitable[None]],
    status: int,
    *,
    stream: bool,
) -> None:
    engines = [await start_engine(behaviour), await start_engine(behaviour)]
    async with running_router(QUICK) as router:
        router.route(engines[0].endpoint("r1"), engines[1].endpoint("r2"))
        answer = await ask(router, chat(stream=stream))
        assert router.outstanding() == 0
    assert answer.status == status
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert sum(len(engine.arrivals) for engine in engines) == 1


@pytest.mark.parametrize("behaviour", [reset, close])
async def test_not_on_a_connection_of_the_pool_either(
    start_engine: StartEngine, behaviour: Callable[[Arrival], Awaitable[None]]
) -> None:
    engines = [await start_engine(), await start_engine()]
    async with running_router(QUICK) as router:
        router.route(engines[0].endpoint("r1"), engines[1].endpoint("r2"))
        for _ in range(4):
            assert (await ask(router, chat())).status == 200
        for engine in engines:
            engine.behaviour = behaviour
            engine.arrivals.clear()
        answer = await ask(router, chat())
    assert answer.status == 502
    assert sum(len(engine.arrivals) for engine in engines) == 1
    assert [engine.connections for engine in engines] == [1, 1]


async def test_busy_is_tried_once_elsewhere_and_no_further(start_engine: StartEngine) -> None:
    engines = [await start_engine(answer_503) for _ in range(3)]
    async with running_router(QUICK) as router:
        router.route(*(engine.endpoint(f"r{i}") for i, engine in enumerate(engines)))
        answer = await ask(router, chat())
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert sorted(len(engine.arrivals) for engine in engines) == [0, 1, 1]


async def test_busy_with_one_replica_is_not_tried_there_again(start_engine: StartEngine) -> None:
    engine = await start_engine(answer_503)
    async with running_router(QUICK) as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, chat())
    assert answer.status == 503
    assert len(engine.arrivals) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_breaks_is_told_and_not_sent_again(
    start_engine: StartEngine, *, stream: bool
) -> None:
    engines = [await start_engine(token_then_reset), await start_engine(token_then_reset)]
    async with running_router(QUICK) as router:
        router.route(engines[0].endpoint("r1"), engines[1].endpoint("r2"))
        answer = await ask(router, chat(stream=stream))
        assert router.outstanding() == 0
    assert sum(len(engine.arrivals) for engine in engines) == 1
    if stream:
        assert _is_broken_off(answer)
    else:
        assert answer.status == 502


async def test_a_stream_that_falls_silent_is_broken_off(start_engine: StartEngine) -> None:
    async def one_token(arrival: Arrival) -> None:
        arrival.start_events()
        arrival.event("one")
        await asyncio.Event().wait()

    engine = await start_engine(one_token)
    async with running_router(QUICK) as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, chat(stream=True))
        await until(engine.arrivals[0].closed.is_set, "the engine's connection is closed")
    assert _is_broken_off(answer)
    assert b"silent" in answer.body


@pytest.mark.parametrize("cut", [b'data: {"a', b'data: {"a": 1}', b'data: {"a": 1}\n'])
async def test_a_stream_that_breaks_within_an_event_shows_no_broken_event(
    start_engine: StartEngine, cut: bytes
) -> None:
    async def cut_off(arrival: Arrival) -> None:
        arrival.start_events()
        arrival.event("one")
        arrival.chunk(cut)
        await arrival.writer.drain()
        await asyncio.sleep(0.05)
        arrival.reset()

    engine = await start_engine(cut_off)
    async with running_router(QUICK) as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, chat(stream=True))
    assert _is_broken_off(answer)


async def test_a_stream_without_length_that_ends_before_done_is_broken(
    start_engine: StartEngine,
) -> None:
    async def die(arrival: Arrival) -> None:
        arrival.writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        arrival.writer.write(b'data: {"choices": []}\n\n')
        arrival.writer.close()

    engine = await start_engine(die)
    async with running_router(QUICK) as router:
        router.route(engine.endpoint("r1"))
        chat_answer = await ask(router, chat(stream=True))
        other_answer = await ask(router, chat(stream=True), "/v1/responses")
    assert _is_broken_off(chat_answer)
    assert other_answer.body == b'data: {"choices": []}\n\n'


async def test_a_body_that_breaks_after_it_began_cannot_pass_for_whole(
    start_engine: StartEngine,
) -> None:
    async def half(arrival: Arrival) -> None:
        arrival.writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: audio/wav\r\ncontent-length: 1000\r\n\r\nhalf"
        )
        await arrival.writer.drain()
        await asyncio.sleep(0.05)
        arrival.reset()

    engine = await start_engine(half)
    async with running_router(QUICK) as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, chat(), "/v1/audio/speech")
    assert not answer.whole


async def test_a_failing_endpoint_is_ejected_and_probed_back(start_engine: StartEngine) -> None:
    good, bad = await start_engine(), await start_engine(answer_500)
    policy = EjectionPolicy(failures_max=2, backoff_first_s=0.3)
    async with running_router(QUICK, ejection=policy) as router:
        router.route(bad.endpoint("bad"), good.endpoint("good"))
        statuses = [(await ask(router, chat())).status for _ in range(12)]
        assert statuses.count(500) == 2
        assert router.app.endpoints.ejected() == {"m": 1}
        bad.behaviour = good.behaviour
        bad.arrivals.clear()
        async with asyncio.timeout(5):
            while router.app.endpoints.ejected() == {"m": 1}:
                assert (await ask(router, chat())).status == 200
                await asyncio.sleep(0.02)
        assert len(bad.arrivals) == 1
        labels = {"model": "m"}
        registry = router.app.metrics.registry
        assert registry.get_sample_value("llmgw_router_ejections_total", labels) == 1.0


async def test_a_clients_mistakes_eject_nobody(start_engine: StartEngine) -> None:
    async def refuse(arrival: Arrival) -> None:
        arrival.send(400, b'{"error": {"message": "no"}}')

    engine = await start_engine(refuse)
    async with running_router(QUICK) as router:
        router.route(engine.endpoint("r1"))
        for _ in range(10):
            assert (await ask(router, chat())).status == 400
        assert router.app.endpoints.ejected() == {"m": 0}


async def test_interim_answers_are_not_the_answer(start_engine: StartEngine) -> None:
    async def hints_first(arrival: Arrival) -> None:
        arrival.writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: x\r\n\r\n")
        await arrival.writer.drain()
        await asyncio.sleep(0.02)
        arrival.send(200, b'{"model": "m"}')

    engine = await start_engine(hints_first)
    async with running_router(QUICK) as router:
        router.route(engine.endpoint("r1"))
        answers = [await ask(router, chat()) for _ in range(2)]
    assert [answer.json for answer in answers] == [{"model": "m"}] * 2
    assert engine.connections == 1


async def test_least_outstanding_wins(start_engine: StartEngine) -> None:
    release = asyncio.Event()

    async def hold(arrival: Arrival) -> None:
        await release.wait()
        arrival.send(200, b"{}")

    engines = [await start_engine(hold) for _ in range(3)]
    async with running_router() as router:
        router.route(*(engine.endpoint(f"r{i}") for i, engine in enumerate(engines)))
        asking = [asyncio.create_task(ask(router, chat())) for _ in range(9)]
        await until(lambda: router.outstanding() == 9, "all are outstanding")
        await until(lambda: _arrived(engines) == 9, "all arrived")
        release.set()
        await asyncio.gather(*asking)
    assert [len(engine.arrivals) for engine in engines] == [3, 3, 3]


def _arrived(engines: list[Engine]) -> int:
    return sum(len(engine.arrivals) for engine in engines)


def _is_broken_off(answer: Answer) -> bool:
    """The stream ended in good order, every event in it is whole, the last an error."""
    *events, error, done, rest = answer.body.split(b"\n\n")
    assert answer.whole
    assert (done, rest) == (b"data: [DONE]", b"")
    for event in events:
        json.loads(event.removeprefix(b"data: "))
    return set(json.loads(error.removeprefix(b"data: "))["error"]) == {
        "message",
        "type",
        "param",
        "code",
    }
