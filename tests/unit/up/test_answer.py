"""The first question: answers come piece by piece, and each failure has its own words."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from llmgw.up.answer import QUESTION, NotYetError, ask, curl_line
from llmgw.up.errors import UpError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class FakeRouter:
    """A router that answers as it is told."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.asked: list[Any] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        return web.Response(status=self.status, body=self.body)


@pytest.fixture
async def router() -> AsyncIterator[FakeRouter]:
    fake = FakeRouter()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", fake.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    fake.url = f"http://127.0.0.1:{port}"
    yield fake
    await runner.cleanup()


def event(text: str | None) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


async def answer_of(router: str) -> list[str]:
    async with aiohttp.ClientSession() as session:
        return [text async for text in ask(session, router, "m")]


async def test_the_texts_come_in_order_without_what_is_no_text(router: FakeRouter) -> None:
    router.body = b": waiting\n\n" + event(None) + event("Pa") + event("ris") + b"data: [DONE]\n\n"
    assert await answer_of(router.url) == ["Pa", "ris"]
    assert router.asked[0]["model"] == "m"
    assert router.asked[0]["stream"] is True


@pytest.mark.parametrize("status", [404, 503, 502])
async def test_a_router_that_knows_no_way_yet_may_be_asked_again(
    router: FakeRouter, status: int
) -> None:
    router.status = status
    router.body = b'{"error": {"message": "the model is loading"}}'
    with pytest.raises(NotYetError, match="the model is loading"):
        await answer_of(router.url)


async def test_a_router_that_does_not_listen_yet_may_be_asked_again() -> None:
    with pytest.raises(NotYetError):
        await answer_of("http://127.0.0.1:1")


@pytest.mark.parametrize("body", [b'{"error": {"message": "bad"}}', b"bad", b'["bad"]'])
async def test_a_refusal_is_an_error_with_its_reason(router: FakeRouter, body: bytes) -> None:
    router.status, router.body = 400, body
    with pytest.raises(UpError, match=r"m does not answer: HTTP 400: .*bad"):
        await answer_of(router.url)


async def test_an_answer_that_breaks_off_is_an_error(router: FakeRouter) -> None:
    router.body = event("Pa") + b'data: {"error": {"message": "the engine died"}}\n\n'
    with pytest.raises(UpError, match="broke off: the engine died"):
        await answer_of(router.url)


def test_the_curl_line_survives_a_shell() -> None:
    words = shlex.split(curl_line("http://127.0.0.1:8080", "org/it's"))
    assert words[:3] == ["curl", "-N", "http://127.0.0.1:8080/v1/chat/completions"]
    body = json.loads(words[-1])
    assert body["model"] == "org/it's"
    assert body["messages"][0]["content"] == QUESTION
