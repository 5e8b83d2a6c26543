"""Running a program: until a signal, then down in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def stop_on_signals() -> Iterator[asyncio.Event]:
    """Inside a running loop: an event that SIGTERM or SIGINT sets, once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended; its own errors are raised."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
