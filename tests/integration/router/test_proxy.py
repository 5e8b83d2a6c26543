"""The plain path: requests reach an engine under its own model name, answers come back."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.router.harness import Arrival, Client, ask, chat, echo, running_router

if TYPE_CHECKING:
    from tests.integration.router.conftest import StartEngine


async def test_a_chat_completion_passes_through(start_engine: StartEngine) -> None:
    engine = await start_engine()
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, chat(), "/v1/chat/completions", "x-request-id: abc")
    assert answer.status == 200
    assert answer.json["model"] == "m"
    assert answer.headers["x-request-id"] == "abc"
    assert engine.arrivals[0].headers["x-request-id"] == "abc"
    assert engine.arrivals[0].json == chat()


async def test_a_request_without_an_id_gets_one_that_the_engine_sees(
    start_engine: StartEngine,
) -> None:
    engine = await start_engine()
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        answers = [await ask(router, chat()) for _ in range(2)]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert ids == [arrival.headers["x-request-id"] for arrival in engine.arrivals]
    assert ids[0] != ids[1]


async def test_a_stream_passes_through_piece_by_piece(start_engine: StartEngine) -> None:
    go_on = asyncio.Event()

    async def behave(arrival: Arrival) -> None:
        arrival.start_events()
        arrival.event("first")
        await go_on.wait()
        arrival.event("second")
        arrival.chunk(b"data: [DONE]\n\n")
        arrival.chunk(b"")

    engine = await start_engine(behave)
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        client = await Client.connect(router)
        client.post(chat(stream=True))
        head = await client.head()
        assert head.headers["content-type"].startswith("text/event-stream")
        assert b"first" in await client.chunk()
        go_on.set()
        assert b"second" in await client.chunk()
        client.close()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/rerank",
        "/v1/audio/speech",
        "/v1/images/generations",
    ],
)
async def test_every_route_passes_by_model(start_engine: StartEngine, path: str) -> None:
    engine = await start_engine()
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, {"model": "m", "input": "x"}, path + "?beta=1")
    assert answer.status == 200
    assert engine.arrivals[0].path == path + "?beta=1"


@pytest.mark.parametrize("asked", ["org/m:q4", "alias", "ünï"])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_engine_gets_its_own_name_and_the_client_sees_the_asked_one(
    start_engine: StartEngine, asked: str, *, stream: bool
) -> None:
    engine = await start_engine()
    served = "/models/m.gguf"
    async with running_router() as router:
        router.route(
            engine.endpoint(
                "r1", model="org/m:q4", aliases=("alias", "ünï"), served_model_name=served
            )
        )
        answer = await ask(router, chat(model=asked, stream=stream, seed=1e400))
    assert engine.arrivals[0].json["model"] == served
    documents = [answer.json] if not stream else _events(answer.body)
    assert {document["model"] for document in documents} == {asked}
    assert len(documents) == (3 if stream else 1)


async def test_equal_names_pass_the_very_bytes(start_engine: StartEngine) -> None:
    engine = await start_engine()
    body = b' {"model" : "m",\r\n"x": 1.00, "y":"\\u00e9", "model":"m"} '
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        await ask(router, body)
    assert engine.arrivals[0].body == body


async def test_a_form_passes_by_its_model_field(start_engine: StartEngine) -> None:
    engine = await start_engine()
    sound = bytes(range(256)) * 10
    body = (
        b'--xYz\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n'
        b"content-type: audio/wav\r\n\r\n" + sound + b"\r\n"
        b'--xYz\r\nContent-Disposition: form-data; name="model"\r\n\r\nalias\r\n--xYz--\r\n'
    )
    async with running_router() as router:
        router.route(engine.endpoint("r1", aliases=("alias",), served_model_name="whisper-large"))
        client = await Client.connect(router)
        kind = 'content-type: multipart/form-data; boundary="xYz"'
        client.send("POST", "/v1/audio/transcriptions", body, kind)
        answer = await client.answer()
        client.close()
    assert answer.status == 200
    assert engine.arrivals[0].body == body.replace(b"\r\nalias\r\n", b"\r\nwhisper-large\r\n")


async def test_headers_of_the_hop_and_cookies_stay_here(start_engine: StartEngine) -> None:
    async def behave(arrival: Arrival) -> None:
        extra = ("set-cookie: a=b", "x-kept: 1", "keep-alive: timeout=5", "x-request-id: engine's")
        arrival.send(200, b"{}", *extra)

    engine = await start_engine(behave)
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(
            router,
            chat(),
            "/v1/chat/completions",
            "connection: keep-alive, x-private",
            "x-private: 1",
            "te: trailers",
            "cookie: c=d",
            "accept-encoding: gzip",
            "authorization: Bearer t",
            "x-request-id: mine",
        )
    sent = engine.arrivals[0].headers
    assert sent["authorization"] == "Bearer t"
    assert sent["host"] == f"127.0.0.1:{engine.port}"
    assert not {"connection", "x-private", "te", "cookie", "accept-encoding"} & set(sent)
    assert answer.headers["x-kept"] == "1"
    assert answer.headers["x-request-id"] == "mine"
    assert not {"set-cookie", "keep-alive"} & set(answer.headers)


async def test_a_redirect_of_an_engine_is_a_failure_and_not_followed(
    start_engine: StartEngine,
) -> None:
    other = await start_engine()

    async def behave(arrival: Arrival) -> None:
        arrival.send(307, b"", f"location: http://127.0.0.1:{other.port}/")

    engine = await start_engine(behave)
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, chat())
    assert answer.status == 502
    assert not other.arrivals


@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
async def test_an_engines_error_reaches_the_client_in_one_form(
    start_engine: StartEngine, kind: str
) -> None:
    async def behave(arrival: Arrival) -> None:
        arrival.send(422, b'"no good"', kind=kind)

    engine = await start_engine(behave)
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, chat())
    assert answer.status == 422
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert "no good" in answer.error["message"]


async def test_an_engines_own_error_object_is_not_touched(start_engine: StartEngine) -> None:
    body = b'{"error":{"message":"too long","type":"BadRequest","param":null,"code":400}}'

    async def behave(arrival: Arrival) -> None:
        arrival.send(400, body)

    engine = await start_engine(behave)
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, chat())
    assert (answer.status, answer.body) == (400, body)


async def test_an_answer_of_unknown_length_is_whole_at_its_end(start_engine: StartEngine) -> None:
    async def behave(arrival: Arrival) -> None:
        arrival.writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: audio/wav\r\n\r\n" + b"x" * 300_000)
        await arrival.writer.drain()
        arrival.writer.close()

    engine = await start_engine(behave)
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        answer = await ask(router, chat(), "/v1/audio/speech")
    assert (len(answer.body), answer.whole) == (300_000, True)


async def test_connections_are_used_again(start_engine: StartEngine) -> None:
    engine = await start_engine()
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        for _ in range(5):
            assert (await ask(router, chat())).status == 200
        assert engine.connections == 1


async def test_a_connection_that_the_engine_closed_while_idle_is_not_used(
    start_engine: StartEngine,
) -> None:
    async def behave(arrival: Arrival) -> None:
        await echo(arrival)
        await arrival.writer.drain()
        arrival.writer.close()

    engine = await start_engine(behave)
    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        for _ in range(20):
            assert (await ask(router, chat())).status == 200
    assert engine.connections == 20


def _events(body: bytes) -> list[Any]:
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]
