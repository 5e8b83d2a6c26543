"""Engines that end with their test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.router.harness import Arrival, Engine, echo

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    StartEngine = Callable[..., Awaitable[Engine]]


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
