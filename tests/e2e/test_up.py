"""`llmgw up`: an answer from nothing, no process left behind, clear words when it cannot work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.support.system import (
    ROOT,
    System,
    _start_up,
    free_port_base,
    paced_model,
    processes_of,
    run,
    until,
    up,
)

if TYPE_CHECKING:
    from pathlib import Path

PARTS_GONE_S = 5.0
STOP_S = 40.0
SMALL = ("--agents", "1", "--control-planes", "1")


async def nothing_left(folder: Path) -> bool:
    return not processes_of(folder)


def pids_of(ready: dict[str, Any]) -> dict[str, int]:
    """Every pid of a ready-file by the part's name."""
    planes = {plane["id"]: plane["pid"] for plane in ready["control_planes"]}
    agents = {agent["node_id"]: agent["pid"] for agent in ready["agents"]}
    return {**planes, **agents, "etcd": ready["etcd"]["pids"][0]}


def output_of(system: System) -> str:
    return (system.folder / "up.log").read_text()


async def engine_pid(system: System) -> int:
    (replica,) = (await system.settled(replicas=1))["replicas"]
    return int(replica["pid"])


def write_catalog(folder: Path, *args: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "catalog.yaml"
    path.write_text(repr([paced_model("paced", args=args)]))
    return path


async def test_once_shows_a_real_answer_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    code, out, err = await run(
        *("up", "--once", "--state-dir", str(tmp_path / "state"), "--ready-file", str(ready_file)),
        *("--port-base", str(free_port_base())),
    )
    assert code == 0, out + err
    assert re.search(r"^smollm2: \S", out, re.MULTILINE), out
    assert re.search(r"cp-\d leads \(term 1\)", out)
    assert "2 of 2 attached" in out
    assert "smollm2" in ready_file.read_text()
    assert processes_of(tmp_path) == []


async def test_a_running_system_is_as_its_ready_file_says_and_comes_back_when_killed(
    tmp_path: Path,
) -> None:
    async with up(tmp_path / "up", [paced_model("paced")]) as system:
        assert_ready_file_is_true(system)
        await assert_curl_line_works(output_of(system))
        await assert_second_is_refused(system)
        await assert_killed_parts_come_back(system)
    assert not system.ready_file.exists()
    assert "everything is stopped" in output_of(system)
    assert system.process.returncode == 0


def assert_ready_file_is_true(system: System) -> None:
    ready = system.ready
    assert set(ready) == {"router", "admin", "control_planes", "agents", "etcd", "models"}
    assert ready["models"] == ["paced"]
    assert [plane["admin"] for plane in ready["control_planes"]] == ready["admin"]
    assert all(plane["warden_pid"] is None for plane in ready["control_planes"])
    for name, pid in pids_of(ready).items():
        assert name in " ".join(psutil.Process(pid).cmdline()), name


async def assert_curl_line_works(output: str) -> None:
    (line,) = re.findall(r"^Try it +(curl .*)$", output, re.MULTILINE)
    assert shutil.which("curl"), "this test needs curl"
    process = await asyncio.create_subprocess_shell(line, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert b"data: [DONE]" in out, out
    assert b'"t0 "' in out, out


async def assert_second_is_refused(system: System) -> None:
    """By the state directory, and by the ports."""
    state = str(system.folder / "state")
    code, _, err = await run("up", "--state-dir", state, "--port-base", str(free_port_base()))
    assert code == 1
    assert f"another llmgw up (pid {system.process.pid})" in err
    base = system.router.rpartition(":")[2]
    other = str(system.folder / "other")
    code, _, err = await run("up", "--state-dir", other, "--port-base", base)
    assert (code, err) == (
        1,
        f"error: port {base} (router) is taken by another program; use --port-base\n",
    )


async def assert_killed_parts_come_back(system: System) -> None:
    before, engine = pids_of(system.ready), await engine_pid(system)
    for name in ("cp-1", "node-1", "etcd"):
        os.kill(before[name], signal.SIGKILL)

    async def rewritten() -> bool:
        now = pids_of(system.ready)
        return all(now[name] != before[name] for name in ("cp-1", "node-1", "etcd"))

    await until("the ready-file has the new pids", rewritten, 15)
    assert pids_of(system.ready)["node-2"] == before["node-2"]
    assert_ready_file_is_true(system)
    assert await engine_pid(system) == engine
    assert "control plane cp-1 was ended by SIGKILL; starting it again in 1 s" in output_of(system)


async def test_engines_outlive_an_up_that_keeps_them_or_is_killed_and_are_adopted(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "up"
    catalog = write_catalog(folder)
    system = await _start_up(folder, catalog, ("--keep-engines", *SMALL))
    engine = await engine_pid(system)
    assert await system.stop() == 0
    assert [process.pid for process in processes_of(folder)] == [engine]

    system = await _start_up(folder, catalog, SMALL)
    assert await engine_pid(system) == engine
    system.process.send_signal(signal.SIGKILL)
    await system.process.wait()
    system.ready_file.unlink()

    async def only_the_engine() -> bool:
        return [process.pid for process in processes_of(folder)] == [engine]

    await until("the parts died with up", only_the_engine, PARTS_GONE_S)
    psutil.Process(engine).kill()
    await until("nothing is left", lambda: nothing_left(folder), PARTS_GONE_S)


async def test_a_second_ctrl_c_kills_at_once(tmp_path: Path) -> None:
    """The engine does not stop when it is asked to."""
    folder = tmp_path / "up"
    catalog = write_catalog(folder, "--ignore-term")
    system = await _start_up(folder, catalog, SMALL)
    await engine_pid(system)
    system.process.send_signal(signal.SIGINT)

    async def stopping() -> bool:
        return "stopping engines" in output_of(system)

    await until("it waits for the engine", stopping, STOP_S)
    system.process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PARTS_GONE_S):
        assert await system.process.wait() == 0
    assert "killing everything" in output_of(system)
    await until("nothing is left", lambda: nothing_left(folder), 1)


async def test_ctrl_c_while_it_comes_up_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "up"
    folder.mkdir()
    with (folder / "up.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "llmgw", "up", "--state-dir", str(folder / "state")),
            *("--port-base", str(free_port_base())),
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    system = System(folder, process)

    async def etcd_runs() -> bool:
        return "etcd " in output_of(system)

    await until("etcd is ready", etcd_runs, 30)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(STOP_S):
        assert await process.wait() == 0
    assert processes_of(folder) == []
    assert "Traceback" not in output_of(system)


async def test_a_part_that_cannot_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "etcd"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'the disk is on fire' >&2\nexit 7\n")
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}"}
    code, _, err = await run(
        *("up", "--state-dir", str(tmp_path / "state"), "--port-base", str(free_port_base())),
        env=environment,
    )
    assert code == 1
    assert err.startswith("error: etcd (etcd-1) ended with exit code 7")
    assert "  | the disk is on fire\n" in err
    assert processes_of(tmp_path / "state") == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name: 1.10\n", "catalog.yaml:1: models[0].name: expected text"),
        (None, "catalog.yaml: no such file"),
    ],
)
async def test_a_wrong_catalog_is_refused_before_anything_starts(
    tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "catalog.yaml"
    if content is not None:
        path.write_text(content)
    code, out, err = await run(
        *("up", "--state-dir", str(tmp_path / "state"), "--catalog", str(path)),
    )
    assert (code, out) == (2, "")
    assert said in err
    assert not (tmp_path / "state").exists()


async def test_once_with_a_model_that_cannot_run_says_why_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "catalog.yaml"
    path.write_text("{name: m, profiles: [{name: p, engine: command, args: [/no/such/program]}]}")
    code, out, err = await run(
        *("up", "--once", "--state-dir", str(tmp_path / "state"), "--catalog", str(path)),
        *("--port-base", str(free_port_base()), "--agents", "1", "--control-planes", "1"),
    )
    assert code == 1, out
    assert "/no/such/program" in err
    assert processes_of(tmp_path) == []


async def test_a_port_taken_by_another_program_is_named(tmp_path: Path) -> None:
    base = free_port_base()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", base + 3))
        holder.listen()
        with contextlib.suppress(TimeoutError):
            code, _, err = await run(
                "up", "--state-dir", str(tmp_path / "state"), "--port-base", str(base)
            )
    assert code == 1
    assert err == (
        f"error: port {base + 3} (etcd-1 clients) is taken by another program; use --port-base\n"
    )
