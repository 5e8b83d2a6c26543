"""A part's process: restarted with growing pauses, stopped with its group, dead with its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from ha.clock import BootClock
from llmgw.up import process as processes
from llmgw.up.errors import PartFailedError, UpError
from llmgw.up.parts import Part
from llmgw.up.process import (
    RESTART_DELAY_MAX_S,
    STABLE_AFTER_S,
    Supervised,
    how_it_ended,
    restart_delay_s,
)
from llmgw.up.state import StateDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
PARENT = (
    "import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', "
    "'import time; time.sleep(60)']); print(child.pid, flush=True); time.sleep(60)"
)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateDir]:
    made = StateDir(tmp_path)
    yield made
    made.close()


def part(script: str, grace_s: float = 5) -> Part:
    return Part("part", "the part", (sys.executable, "-c", script), grace_s)


def supervised(script: str, state: StateDir, grace_s: float = 5) -> Supervised:
    return Supervised(part(script, grace_s), state, os.environ, BootClock())


async def logged(state: StateDir, text: str) -> str:
    """Wait until the part has written something."""
    log = state.logs / "part.log"
    await eventually(lambda: text in log.read_text())
    return log.read_text()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what other processes do sets no event
            await asyncio.sleep(0.02)


def test_pauses_double_up_to_a_limit_and_start_again_after_a_good_minute() -> None:
    pauses, pause = [], 0.0
    for _ in range(7):
        pause = restart_delay_s(pause, alive_s=0.1)
        pauses.append(pause)
    assert pauses == [1, 2, 4, 8, 16, RESTART_DELAY_MAX_S, RESTART_DELAY_MAX_S]
    assert restart_delay_s(30, alive_s=STABLE_AFTER_S) == 1


def test_an_end_in_words() -> None:
    assert how_it_ended(3) == "ended with exit code 3"
    assert how_it_ended(-9) == "was ended by SIGKILL"
    assert how_it_ended(-40) == "was ended by signal 40"


async def test_a_part_that_dies_is_started_again_and_said_so(
    state: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "RESTART_DELAY_S", 0.05)
    member = supervised(SLEEPER, state)
    await member.start()
    said: list[str] = []
    restarted = asyncio.Event()
    watch = asyncio.create_task(member.watch(lambda: True, said.append, restarted.set))
    first = member.pid
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(10):
        await restarted.wait()
    assert member.pid != first
    assert member.running
    assert said[0].startswith("the part was ended by SIGKILL; starting it again")
    assert said[1] == f"the part runs again (pid {member.pid})"
    watch.cancel()
    await member.stop()
    assert not member.running


async def test_while_the_system_comes_up_an_end_is_a_failure_with_its_last_words(
    state: StateDir,
) -> None:
    earlier = state.open_log("part")
    os.write(earlier, b"of an earlier run\n")
    os.close(earlier)
    member = supervised("print('the disk is full'); raise SystemExit(3)", state)
    await member.start()
    with pytest.raises(PartFailedError) as caught:
        await member.watch(lambda: False, lambda _: None, lambda: None)
    assert "the part ended with exit code 3" in str(caught.value)
    assert "  | the disk is full" in str(caught.value)
    assert "earlier run" not in str(caught.value)


async def test_a_program_that_is_not_there_is_named(state: StateDir) -> None:
    member = Supervised(Part("x", "the part", ("/no/such",), 1), state, {}, BootClock())
    with pytest.raises(UpError, match="cannot start the part"):
        await member.start()


async def test_a_part_that_ignores_term_is_killed_after_its_grace(state: StateDir) -> None:
    member = supervised(STUBBORN, state, grace_s=0.2)
    await member.start()
    await logged(state, "up")
    async with asyncio.timeout(5):
        await member.stop()
    assert await member.ended() == -signal.SIGKILL


async def test_what_a_part_started_in_its_group_goes_with_it(state: StateDir) -> None:
    member = supervised(PARENT, state)
    await member.start()
    child = int(await logged(state, "\n"))
    await member.stop()
    await eventually(lambda: not psutil.pid_exists(child))


async def test_stopping_what_was_never_started_does_nothing(state: StateDir) -> None:
    member = supervised(SLEEPER, state)
    await member.stop()
    await member.kill()
    assert member.pid == 0


async def test_a_terminals_ctrl_c_does_not_reach_parts(state: StateDir) -> None:
    """They are in sessions of their own, and so stopped in order."""
    member = supervised(SLEEPER, state)
    await member.start()
    assert os.getsid(member.pid) == member.pid != os.getsid(0)
    await member.stop()


async def test_a_part_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = f"""
import asyncio, os
from pathlib import Path
from ha.clock import BootClock
from llmgw.up.parts import Part
from llmgw.up.process import Supervised
from llmgw.up.state import StateDir

async def main():
    part = Part("part", "x", ({sys.executable!r}, "-c", {SLEEPER!r}), 1)
    member = Supervised(part, StateDir(Path({str(tmp_path)!r})), os.environ, BootClock())
    await member.start()
    print(member.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
    parent = subprocess.Popen(  # noqa: ASYNC220 - it must not be a child of this loop
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert psutil.pid_exists(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    await eventually(lambda: not psutil.pid_exists(child))
