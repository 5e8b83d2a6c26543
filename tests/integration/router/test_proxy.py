"""The plain path: requests reach an engine under its own model name, answers come back."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from tests.integration.router.harness import Arrival, Client, ask, chat, running_router

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
        first = await client.chunk()
        assert (
            json.loads(first.removeprefix(b"data: "))["choices"][0]["delta"]["content"] == "first"
        )
        go_on.set()
        assert b"second" in await client.chunk()
        client.close()
