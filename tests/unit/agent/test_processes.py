"""Engine processes: spawned apart, watched with and without pidfd, ended by group."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from llmgw.agent import procfs
from llmgw.agent.errors import StartError
from llmgw.agent.processes import EngineProcess, Identity, end_group, members, spawn
from tests.support.agents import is_gone, until

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH = "owner:test"


def start(tmp_path: Path, code: str) -> EngineProcess:
    argv = (sys.executable, "-c", code)
    return spawn(argv, {}, output=tmp_path / "out.log", folder=tmp_path, token=LAUNCH)


async def test_an_engine_has_a_session_and_group_of_its_own_and_writes_to_a_file(
    tmp_path: Path,
) -> None:
    code = "import os,sys;print(os.getsid(0)==os.getpgrp()==os.getpid(), sys.stdin.read()=='')"
    process = start(tmp_path, code + ";sys.stderr.write('err');sys.exit(5)")
    process.watch()
    await asyncio.wait_for(process.exited.wait(), 10)
    assert process.reap() == 5
    assert sorted((tmp_path / "out.log").read_text().split()) == ["True", "True", "err"]


async def test_the_output_of_a_second_run_is_appended(tmp_path: Path) -> None:
    for _ in range(2):
        process = start(tmp_path, "print('x')")
        process.watch()
        await asyncio.wait_for(process.exited.wait(), 10)
        process.reap()
    assert (tmp_path / "out.log").read_text() == "x\nx\n"


@pytest.mark.parametrize("pidfd", [True, False])
async def test_an_adopted_process_is_watched_with_and_without_pidfd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pidfd: bool
) -> None:
    def unsupported(_: int) -> int:
        raise OSError(38, "Function not implemented")

    child = start(tmp_path, "import time; time.sleep(60)")
    await until(lambda: procfs.launch_token(child.identity.pid) == LAUNCH)
    if not pidfd:
        monkeypatch.setattr(os, "pidfd_open", unsupported)
    adopted = EngineProcess(child.identity)
    adopted.watch()
    await asyncio.sleep(0)
    assert not adopted.exited.is_set()
    os.kill(child.identity.pid, signal.SIGKILL)
    await asyncio.wait_for(adopted.exited.wait(), 10)
    assert adopted.reap() is None
    assert child.reap() == -signal.SIGKILL


async def test_a_process_that_died_before_it_was_watched_counts_as_exited(tmp_path: Path) -> None:
    child = start(tmp_path, "")
    await until(lambda: is_gone(child.identity.pid))
    adopted = EngineProcess(child.identity)
    adopted.watch()
    assert adopted.exited.is_set()
    assert not child.identity.is_alive()
    child.reap()


async def test_what_left_the_group_with_our_token_is_ended_too(tmp_path: Path) -> None:
    code = (
        "import os,time\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); print(os.getpid(), flush=True)\n"
        "time.sleep(60)\n"
    )
    process = start(tmp_path, code)
    process.watch()
    out = tmp_path / "out.log"
    await until(lambda: out.read_text().strip().isdigit())
    daemon = int(out.read_text())
    assert {stat.pid for stat in members(process.identity)} == {process.identity.pid, daemon}
    await process.end(grace_s=5)
    assert is_gone(daemon)
    assert process.reap() == -signal.SIGTERM


async def test_what_ignores_term_is_killed_after_the_grace(tmp_path: Path) -> None:
    code = (
        "import signal,time;signal.signal(15, signal.SIG_IGN);print('up',flush=True);time.sleep(60)"
    )
    process = start(tmp_path, code)
    process.watch()
    await until(lambda: (tmp_path / "out.log").read_text() == "up\n")
    await process.end(grace_s=0.2)
    assert process.reap() == -signal.SIGKILL


async def test_a_group_id_that_belongs_to_somebody_else_by_now_is_not_touched() -> None:
    """Our front is long dead and its id was given to a foreign group."""
    foreign = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    stale = Identity(procfs.boot_id(), foreign.pid, 1, foreign.pid, LAUNCH)
    assert members(stale) == []
    await end_group(stale, grace_s=0.1)
    assert not is_gone(foreign.pid)
    foreign.kill()
    await foreign.wait()


def test_nothing_of_another_boot_is_ours() -> None:
    stat = procfs.read_stat(os.getpid())
    assert stat is not None
    other = Identity("another boot", stat.pid, stat.start_ticks, stat.group, LAUNCH)
    assert not other.is_alive()
    assert members(other) == []


def test_a_program_that_may_not_be_run_is_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    with pytest.raises(StartError, match=f"cannot run {plain}"):
        spawn((str(plain),), {}, output=tmp_path / "o", folder=tmp_path, token=LAUNCH)
    with pytest.raises(StartError, match="command not found: no-such-program"):
        spawn(("no-such-program",), {}, output=tmp_path / "o", folder=tmp_path, token=LAUNCH)
