"""What is counted, under which names, and that no client can mint a series."""

from __future__ import annotations

import asyncio
import random
import re
from typing import TYPE_CHECKING

from tests.integration.router.harness import Arrival, Client, ask, chat, echo, fetch, running_router

if TYPE_CHECKING:
    from tests.integration.router.conftest import StartEngine
    from tests.integration.router.harness import Router

SEED = 19


async def _series(router: Router) -> dict[str, float]:
    text = (await fetch(router, "/metrics")).body.decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


async def test_odd_requests_mint_no_series(start_engine: StartEngine) -> None:
    engine = await start_engine()
    draw = random.Random(SEED)

    def word() -> str:
        return f"{draw.getrandbits(64):x}"

    async with running_router() as router:
        router.route(engine.endpoint("r1"))
        await ask(router, chat())
        before = await _series(router)
        client = await Client.connect(router)
        for _ in range(2_000):
            client.post(chat(model=word()))
            assert (await client.answer()).status == 404
        for _ in range(500):
            client.send("GET", "/" + word())
            assert (await client.answer()).status == 404
        for _ in range(200):
            client.post(chat(), "/v1/nowhere", f"x-client-id: {word()}")
            assert (await client.answer()).status == 404
        client.post(chat(model="x" * 10_000))
        assert (await client.answer()).status == 404
        for method in ("PUT", "DELETE", "PATCH", "PROPFIND", "MKCOL"):
            client.send(method, "/v1/models")
            assert (await client.answer()).status == 405
        client.close()
        for _ in range(50):
            assert (await fetch(router, "/", word().upper())).status == 400
        after = await _series(router)
    grown = set(after) - set(before)
    assert len(grown) <= 5
    assert after['llmgw_router_requests_total{code="404",model="other"}'] == 2_701
    assert after['llmgw_router_requests_total{code="405",model="other"}'] == 5


async def test_requests_are_counted_under_the_catalogs_name(start_engine: StartEngine) -> None:
    async def paced(arrival: Arrival) -> None:
        if not arrival.json.get("stream"):
            await echo(arrival)
            return
        arrival.start_events()
        for _ in range(3):
            arrival.event("token")
            await arrival.writer.drain()
            await asyncio.sleep(0.02)
        arrival.chunk(b"data: [DONE]\n\n")
        arrival.chunk(b"")

    engine = await start_engine(paced)
    async with running_router() as router:
        router.route(engine.endpoint("r1", model="org/m", aliases=("alias",)), names=["idle"])
        await ask(router, chat(model="alias", stream=True))
        await ask(router, chat(model="org/m"))
        await ask(router, chat(model="idle"))
        series = await _series(router)
    assert series['llmgw_router_requests_total{code="200",model="org/m"}'] == 2
    assert series['llmgw_router_requests_total{code="503",model="idle"}'] == 1
    assert series['llmgw_router_time_to_first_token_seconds_count{model="org/m"}'] == 2
    assert series['llmgw_router_inter_token_latency_seconds_count{model="org/m"}'] == 3
    assert not [name for name in series if re.search("alias", name)]
