"""The router's event loop, and engines that end with their test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import uvloop

from tests.integration.router.harness import Arrival, Engine, echo

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    StartEngine = Callable[..., Awaitable[Engine]]


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 - the hook's signature
    item: pytest.Item,  # noqa: ARG001 - likewise
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the router runs on: how closed connections show differs between loops."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def start_engine() -> AsyncGenerator[StartEngine, None]:
    engines: list[Engine] = []

    async def start(behaviour: Callable[[Arrival], Awaitable[None]] = echo) -> Engine:
        engine = Engine(behaviour)
        await engine.start()
        engines.append(engine)
        return engine

    yield start
    for engine in engines:
        await engine.stop()
