"""What is refused, and how: errors in the form of OpenAI's API, models by name, sizes."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.integration.router.harness import Client, Engine, ask, chat, fetch, running_router

if TYPE_CHECKING:
    from tests.integration.router.conftest import StartEngine

MIB = 1 << 20


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b"{", None, "not valid JSON"),
        (b"\xff\xfe{", None, "not valid JSON"),
        (b"[" * 100_000, None, "not valid JSON"),
        (b"[]", None, "object"),
        (b"{}", "model", "missing"),
        (b'{"model": 1.10}', "model", "the number 1.1"),
        (b'{"model": false}', "model", "false"),
        (b'{"model": null}', "model", "null"),
        (b'{"model": ["m"]}', "model", "a list"),
        (b'{"model": ""}', "model", "empty"),
        (b"", None, "not valid JSON"),
    ],
)
async def test_a_body_that_names_no_model_is_a_400(
    body: bytes, param: str | None, words: str
) -> None:
    async with running_router() as router:
        router.route(names=["m"])
        answer = await ask(router, body)
    assert answer.status == 400
    assert answer.error["param"] == param
    assert words in answer.error["message"]
    assert answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("multipart/form-data", b"", "boundary"),
        ("multipart/form-data; boundary=b", b"--b\r\nx", "damaged"),
        ("multipart/form-data; boundary=b", b"--b--\r\n", "missing"),
    ],
)
async def test_a_form_that_names_no_model_is_a_400(kind: str, body: bytes, words: str) -> None:
    async with running_router() as router:
        router.route(names=["m"])
        client = await Client.connect(router)
        client.send("POST", "/v1/audio/transcriptions", body, f"content-type: {kind}")
        answer = await client.answer()
        client.close()
    assert answer.status == 400
    assert words in answer.error["message"]


async def test_an_unknown_model_is_a_404_and_a_known_one_without_replica_a_503() -> None:
    async with running_router() as router:
        router.route(names=["m"])
        unknown = await ask(router, chat(model="x" * 10_000))
        known = await ask(router, chat())
    assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")
    assert len(unknown.body) < 1_000
    assert (known.status, known.error["type"]) == (503, "service_unavailable")
    assert int(known.headers["retry-after"]) > 0


async def test_before_any_route_table_nothing_is_called_unknown() -> None:
    async with running_router() as router:
        answers = [await ask(router, chat()), await fetch(router, "/v1/models")]
        ready = await fetch(router, "/readyz")
        alive = await fetch(router, "/healthz")
        router.route(names=["m"])
        ready_now = await fetch(router, "/readyz")
    assert [answer.status for answer in answers] == [503, 503]
    assert (ready.status, alive.status, ready_now.status) == (503, 200, 200)


async def test_other_paths_and_methods() -> None:
    async with running_router() as router:
        router.route(names=["m"])
        nowhere = await fetch(router, "/v1/nothing")
        outside = await ask(router, chat(), "/v1/audio/../../metrics")
        escaped = await ask(router, chat(), "/v1/audio/%2e%2e/chat/completions")
        wrong = await fetch(router, "/v1/chat/completions")
        odd = await fetch(router, "/v1/models", "FOO")
    assert (nowhere.status, nowhere.error["code"]) == (404, "not_found")
    assert (outside.status, escaped.status) == (404, 404)
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    assert odd.status == 400
    assert odd.error["code"] == "invalid_http"


@pytest.mark.parametrize("name", ["org/m", "org/m:q4", "org/m-2", "plain", "x" * 200])
async def test_a_model_is_found_by_its_raw_and_its_encoded_name(name: str) -> None:
    async with running_router() as router:
        router.route(names=["org/m", "org/m:q4", "org/m-2", "plain", "x" * 200])
        raw = await fetch(router, f"/v1/models/{name}")
        encoded = await fetch(router, f"/v1/models/{quote(name, safe='')}")
        missing = await fetch(router, f"/v1/models/{name}x")
    assert raw.json == encoded.json
    assert (raw.json["id"], raw.json["object"]) == (name, "model")
    assert (missing.status, missing.error["code"]) == (404, "model_not_found")


async def test_models_lists_names_and_aliases() -> None:
    async with running_router() as router:
        router.route(Engine().endpoint("r1", model="org/m", aliases=("chat",)), names=["idle"])
        answer = await fetch(router, "/v1/models")
    assert answer.json["object"] == "list"
    assert [item["id"] for item in answer.json["data"]] == ["chat", "idle", "org/m"]
    assert all(isinstance(item["created"], int) for item in answer.json["data"])


@pytest.mark.parametrize("size", [int(0.9 * MIB), int(1.1 * MIB), 20 * MIB])
@pytest.mark.parametrize("declared", [True, False])
async def test_bodies_up_to_the_limit_pass(
    start_engine: StartEngine, size: int, *, declared: bool
) -> None:
    engine = await start_engine()
    body = json.dumps(chat(image="x" * size)).encode()
    async with running_router(body_bytes_max=21 * MIB) as router:
        router.route(engine.endpoint("r1", served_model_name="other"))
        client = await Client.connect(router)
        if declared:
            client.post(body)
        else:
            await _send_chunked(client, body)
        answer = await client.answer()
        client.close()
    assert answer.status == 200
    assert len(engine.arrivals[0].body) == len(body) + 4


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_above_the_limit_is_a_413_and_the_rest_is_not_kept(
    start_engine: StartEngine, *, declared: bool
) -> None:
    engine = await start_engine()
    body = b"x" * (24 * MIB)
    async with running_router(body_bytes_max=MIB) as router:
        router.route(engine.endpoint("r1"))
        client = await Client.connect(router)
        tracemalloc.start()
        sending = asyncio.create_task(_send_slowly(client, body, declared=declared))
        answer = await client.answer()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        await sending
        client.close()
    assert (answer.status, answer.error["code"]) == (413, "request_too_large")
    assert str(MIB) in answer.error["message"]
    assert peak < 8 * MIB
    assert not engine.arrivals


async def test_a_declared_length_above_the_limit_is_refused_before_the_body_comes() -> None:
    async with running_router(body_bytes_max=MIB) as router:
        router.route(names=["m"])
        client = await Client.connect(router)
        client.writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: r\r\nexpect: 100-continue\r\n"
            b"content-length: 1048577\r\n\r\n"
        )
        answer = await client.answer()
        client.close()
    assert answer.status == 413


async def _send_chunked(client: Client, body: bytes) -> None:
    client.writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ntransfer-encoding: chunked\r\n"
        b"content-type: application/json\r\n\r\n"
    )
    for start in range(0, len(body), 100_000):
        piece = body[start : start + 100_000]
        client.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await client.writer.drain()
    client.writer.write(b"0\r\n\r\n")


async def _send_slowly(client: Client, body: bytes, *, declared: bool) -> None:
    if not declared:
        await _send_chunked(client, body)
        return
    client.writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-length: %d\r\n\r\n" % len(body)
    )
    for start in range(0, len(body), 100_000):
        client.writer.write(memoryview(body)[start : start + 100_000])
        await client.writer.drain()
