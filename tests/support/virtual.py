"""Virtual time: an event loop that jumps to its next timer instead of waiting, and a clock on it.

`run_virtual(scenario())` runs hours of timers in milliseconds and asserts exact durations. Nothing
in the scenario may do real I/O; one in which every task waits for ever raises `DeadlockError`.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

T = TypeVar("T")

SCENARIO_MAX_S = 3600.0


class DeadlockError(RuntimeError):
    """Every task is blocked and no timer is armed."""


class _JumpingSelector(selectors.BaseSelector):
    def __init__(self) -> None:
        self.now_s = 0.0
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, descriptor, events, data)
        self._keys[descriptor] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError("every task is blocked and no timer is armed")
        self.now_s += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time stands still while code runs, and jumps when all of it waits."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._jumping.now_s


class LoopClock:
    """A `Clock` that shows the running loop's time; `slept_s` is what the machine slept besides."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def now_s(self) -> float:
        return asyncio.get_running_loop().time() + self.slept_s


class ManualClock:
    """A `Clock` that moves only by hand."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self._now_s = now_s

    def now_s(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        self._now_s += seconds


def run_virtual(scenario: Coroutine[Any, Any, T], *, within_s: float = SCENARIO_MAX_S) -> T:
    """Run a coroutine on a loop of virtual time; it fails if it takes longer than `within_s`."""

    async def bounded() -> T:
        async with asyncio.timeout(within_s):
            return await scenario

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(bounded())


async def until(condition: Callable[[], bool], *, within_s: float, step_s: float = 0.01) -> None:
    """Wait for a condition with a deadline, in the loop's time."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - any condition, not one that can signal
            await asyncio.sleep(step_s)
