"""The pool's idle connections: closed when they are due, whatever the loop's timer says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from llmgw.router.pool import IDLE_AGE_MAX_S, REAP_INTERVAL_MIN_S, Pool

if TYPE_CHECKING:
    from llmgw.router.connection import Connection


class StepClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def now_s(self) -> float:
        return self.time_s


class IdleConnection:
    """What a pool sees of a connection whose exchange has ended well."""

    def __init__(self) -> None:
        self.idle_since_s = 0.0
        self.closed = False

    def finish(self) -> bool:
        return True

    def usable(self) -> bool:
        return not self.closed

    def close(self) -> None:
        self.closed = True


def idle(pool: Pool) -> IdleConnection:
    connection = IdleConnection()
    pool.give_back(cast("Connection", connection))
    return connection


async def test_a_timer_that_fires_too_early_comes_again_at_once() -> None:
    """A whole period later would be after the engine's own keep-alive has ended."""
    clock = StepClock()
    pool = Pool("127.0.0.1", 1, clock)
    connection = idle(pool)
    clock.time_s += IDLE_AGE_MAX_S - 0.001
    pool._reap()
    assert not connection.closed
    assert pool._reaper is not None
    assert pool._reaper.when() - asyncio.get_running_loop().time() <= REAP_INTERVAL_MIN_S
    clock.time_s += 0.001
    pool._reap()
    assert connection.closed
    assert pool._reaper is None


async def test_each_idle_connection_is_due_by_its_own_age() -> None:
    clock = StepClock()
    pool = Pool("127.0.0.1", 1, clock)
    first = idle(pool)
    clock.time_s += 2.0
    second = idle(pool)
    clock.time_s += IDLE_AGE_MAX_S - 2.0
    pool._reap()
    assert (first.closed, second.closed) == (True, False)
    assert pool._reaper is not None
    left_s = pool._reaper.when() - asyncio.get_running_loop().time()
    assert left_s <= 2.0
    pool.retire()
    assert second.closed
