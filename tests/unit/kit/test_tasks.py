"""Stopping: a signal sets the event once, and a cancelled task's own errors are not swallowed."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from llmgw.kit.tasks import cancel_and_wait, stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_sets_the_event(number: signal.Signals) -> None:
    with stop_on_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        async with asyncio.timeout(5):
            await stop.wait()


async def test_afterwards_signals_do_what_they_usually_do() -> None:
    with stop_on_signals():
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


async def test_cancel_and_wait_waits_for_the_clean_up() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("done")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await cancel_and_wait(task)
    assert cleaned == ["done"]
    assert task.cancelled()


async def test_cancel_and_wait_raises_what_the_task_raised() -> None:
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("in the clean-up") from None

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="in the clean-up"):
        await cancel_and_wait(task)


async def test_cancel_and_wait_takes_a_task_that_has_ended() -> None:
    async def work() -> None:
        return

    task = asyncio.create_task(work())
    await task
    await cancel_and_wait(task)
