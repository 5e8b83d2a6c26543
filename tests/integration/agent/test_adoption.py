"""Engines outlive their agent: killed, stopped or replaced, the next one knows them again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import aiohttp
import pytest

from llmgw.agent import procfs
from llmgw.domain.messages import DrainShard, Register, ShardStatus, StartShard, StopShard
from llmgw.domain.shard import ShardReport, ShardState
from tests.support.agents import (
    AgentProcess,
    free_port,
    is_gone,
    make_agent,
    paced_spec,
    running,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_leader import FakeLeader

S = ShardState


def identity(report: ShardReport) -> tuple[int, int, int]:
    return report.pid, report.process_start_ticks, report.process_group


def output_of(state_dir: Path) -> Path:
    (path,) = (state_dir / "logs").iterdir()
    return path


async def chat(port: int) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://127.0.0.1:{port}/v1/chat/completions", json={"model": "m", "max_tokens": 1}
        ) as answer,
    ):
        assert answer.status == 200


async def start(leader: FakeLeader, *flags: str, port: int = 0) -> ShardReport:
    await leader.send(StartShard(paced_spec(port or free_port(), *flags), "wanted"))
    return await leader.shard("r1-0", S.READY)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_a_new_agent_takes_over_the_same_process_with_its_log(
    leader: FakeLeader, state_dir: Path, end: signal.Signals
) -> None:
    """The engine writes on and answers while no agent runs; nothing is started twice."""
    agent = AgentProcess(state_dir, leader.address)
    await agent.start()
    await leader.registered()
    port = free_port()
    flags = ("--log-interval-s", "0.05", "--log-burst-bytes", "1000000")
    before = await start(leader, *flags, port=port)
    code = await agent.signal(end)
    assert code == (0 if end is signal.SIGTERM else -signal.SIGKILL)
    log = output_of(state_dir)
    size = log.stat().st_size
    await chat(port)
    await until(lambda: log.stat().st_size > size + 1_000_000, "the engine writing on")
    await agent.start()
    register = await leader.registered(2)
    (report,) = register.shards
    assert identity(report) == identity(before)
    assert report.state is S.READY
    assert report.ready_for_s > 0
    assert register.facts.boot_id == procfs.boot_id()
    await chat(port)
    assert (await leader.send(StartShard(report.spec, "wanted"))).reason == "already ready"
    numbers = [int(line[5:]) for line in log.read_text().splitlines() if line.startswith("line ")]
    assert numbers == list(range(1, len(numbers) + 1))
    await leader.send(StopShard("r1", "r1-0", "over"))
    await leader.shard("r1-0", S.STOPPED)
    assert is_gone(before.pid)
    await agent.signal(signal.SIGTERM)


async def test_a_loading_engine_is_adopted_and_becomes_ready(
    leader: FakeLeader, state_dir: Path
) -> None:
    agent = AgentProcess(state_dir, leader.address)
    await agent.start()
    await leader.registered()
    await leader.send(StartShard(paced_spec(free_port(), "--load-s", "2"), "wanted"))
    before = await leader.shard("r1-0", S.LOADING)
    await agent.signal(signal.SIGKILL)
    async with running(make_agent(state_dir, leader.address)):
        (report,) = (await leader.registered(2)).shards
        assert report.state is S.LOADING
        assert identity(await leader.shard("r1-0", S.READY)) == identity(before)


async def test_a_new_agent_goes_on_with_a_drain_and_breaks_no_stream(
    leader: FakeLeader, state_dir: Path
) -> None:
    port = free_port()
    agent = AgentProcess(state_dir, leader.address)
    await agent.start()
    await leader.registered()
    before = await start(leader, "--token-interval-s", "0.3", port=port)
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        body = {"model": "m", "stream": True, "max_tokens": 10}
        async with session.post(url, json=body) as answer:
            await leader.send(DrainShard("r1", "r1-0", "rolled"))
            await leader.shard("r1-0", S.DRAINING)
            await agent.signal(signal.SIGKILL)
            await agent.start()
            (report,) = (await leader.registered(2)).shards
            assert (report.state, identity(report)) == (S.DRAINING, identity(before))
            text = (await answer.content.read()).decode()
    assert text.count("data: {") == 10
    assert text.endswith("data: [DONE]\n\n")
    await leader.shard("r1-0", S.STOPPED)
    assert is_gone(before.pid)
    await agent.signal(signal.SIGTERM)


async def test_an_engine_that_died_while_no_agent_ran_is_failed_and_its_workers_are_ended(
    leader: FakeLeader, state_dir: Path, tmp_path: Path
) -> None:
    agent = AgentProcess(state_dir, leader.address)
    await agent.start()
    await leader.registered()
    lock = str(tmp_path / "gpu")
    before = await start(leader, "--fork-workers", "2", "--worker-lock", lock)
    await agent.signal(signal.SIGKILL)
    os.kill(before.pid, signal.SIGKILL)
    await until(lambda: len(procfs.group_members(before.process_group)) == 2, "the front's end")
    async with running(make_agent(state_dir, leader.address)):
        (report,) = (await leader.registered(2)).shards
        assert report.state in {S.DRAINING, S.FAILED}
        failed = await leader.shard("r1-0", S.FAILED)
        assert procfs.group_members(before.process_group) == []
        assert failed.reason.startswith("the engine ended while no agent watched")
        assert failed.exit_code is None
        assert any(line.startswith("listening on") for line in failed.last_output)


async def test_a_failure_is_still_known_to_the_next_agent(
    leader: FakeLeader, state_dir: Path
) -> None:
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        spec = paced_spec(free_port(), "--exit-code-at-once", "3")
        await leader.send(StartShard(spec, "wanted"))
        failed = await leader.shard("r1-0", S.FAILED)
    async with running(make_agent(state_dir, leader.address)):
        (report,) = (await leader.registered(2)).shards
    assert (report.state, report.reason, report.exit_code) == (S.FAILED, failed.reason, 3)
    assert report.last_output == failed.last_output


@pytest.mark.parametrize("changed", ["start_ticks", "boot_id", "pid"])
async def test_a_reused_pid_is_nobodys_shard(
    leader: FakeLeader, state_dir: Path, changed: str
) -> None:
    """The record names a process that lives, but one fact of its identity differs."""
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        report = await start(leader)
    path = next((state_dir / "shards").iterdir())
    document = json.loads(path.read_text())
    bystander = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    if changed == "pid":
        os.killpg(report.process_group, signal.SIGKILL)
        document["identity"].update(pid=bystander.pid, process_group=bystander.pid)
    elif changed == "start_ticks":
        document["identity"]["start_ticks"] += 1
    else:
        document["identity"]["boot_id"] = "another"
    path.write_text(json.dumps(document))
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered(2)
        await leader.shard("r1-0", S.FAILED)
    assert bystander.returncode is None
    assert not is_gone(bystander.pid)
    bystander.kill()
    await bystander.wait()
    if changed == "boot_id":
        # Nothing of another boot can be ours: the engine was not touched.
        os.killpg(report.process_group, signal.SIGKILL)


@pytest.mark.parametrize("state", ["starting", "pending"])
async def test_an_engine_spawned_just_before_the_agent_died_is_known_by_its_token(
    leader: FakeLeader, state_dir: Path, state: str
) -> None:
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        before = await start(leader)
    path = next((state_dir / "shards").iterdir())
    document = json.loads(path.read_text())
    document.update(identity=None, state=state, ready_s=0.0)
    path.write_text(json.dumps(document))
    async with running(make_agent(state_dir, leader.address)):
        (report,) = (await leader.registered(2)).shards
        assert identity(report) == identity(before)
        await leader.until(
            lambda: any(
                isinstance(up.body, ShardStatus) and up.body.shard.state is S.READY
                for up in leader.heard[-5:]
            )
        )


@pytest.mark.parametrize("state", ["starting", "pending"])
async def test_workers_of_a_front_that_nobody_knew_are_ended_before_it_counts_as_failed(
    leader: FakeLeader, state_dir: Path, state: str
) -> None:
    """Agent and front died between the spawn and its record; the workers hold what they held."""
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        before = await start(leader, "--fork-workers", "2")
    os.kill(before.pid, signal.SIGKILL)
    path = next((state_dir / "shards").iterdir())
    document = json.loads(path.read_text())
    document.update(identity=None, state=state, ready_s=0.0)
    path.write_text(json.dumps(document))
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered(2)
        await leader.shard("r1-0", S.FAILED)
        assert procfs.group_members(before.process_group) == []


async def test_a_start_that_never_came_to_a_process_is_failed(
    leader: FakeLeader, state_dir: Path
) -> None:
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        before = await start(leader)
    os.killpg(before.process_group, signal.SIGKILL)
    path = next((state_dir / "shards").iterdir())
    document = json.loads(path.read_text())
    document.update(identity=None, state="pending")
    path.write_text(json.dumps(document))
    async with running(make_agent(state_dir, leader.address)):
        (report,) = (await leader.registered(2)).shards
        assert report.state is S.FAILED
        assert report.reason.startswith("the agent ended before the engine was started")


async def test_a_process_of_ours_without_a_readable_record_is_quarantined_not_touched(
    leader: FakeLeader, state_dir: Path
) -> None:
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        before = await start(leader)
    next((state_dir / "shards").iterdir()).write_bytes(b"{ damaged")
    async with running(make_agent(state_dir, leader.address)):
        register = await leader.registered(2)
    assert register.shards == ()
    (item,) = register.quarantined
    assert item.pids == (before.pid,)
    assert any("cannot be read" in problem for problem in register.facts.problems)
    assert not is_gone(before.pid)


async def test_engines_of_another_agent_on_this_machine_are_not_ours(
    leader: FakeLeader, state_dir: Path, tmp_path: Path
) -> None:
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        await start(leader)
        async with running(make_agent(tmp_path / "other", leader.address)):
            register = await leader.registered(2)
    assert register.shards == ()
    assert register.quarantined == ()


@pytest.mark.parametrize("name", ["a) R 1 (b", "((x)", "x  ", ")" * 15, "\\xff\\xfe"])
async def test_an_engine_with_an_awkward_name_is_started_adopted_and_stopped(
    leader: FakeLeader, state_dir: Path, name: str
) -> None:
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        before = await start(leader, "--process-name", name)
    async with running(make_agent(state_dir, leader.address)):
        (report,) = (await leader.registered(2)).shards
        assert identity(report) == identity(before)
        await leader.send(StopShard("r1", "r1-0", "over"))
        await leader.shard("r1-0", S.STOPPED)
    assert is_gone(before.pid)


async def test_stop_engines_stops_all_of_this_state_directory_and_exits(
    leader: FakeLeader, state_dir: Path
) -> None:
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        before = await start(leader, "--fork-workers", "1")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "llmgw", "agent", "--stop-engines", "--state-dir", str(state_dir)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0
    assert procfs.group_members(before.process_group) == []
    assert not list((state_dir / "shards").iterdir())


async def test_a_second_agent_on_the_same_state_directory_is_told_so(
    leader: FakeLeader, state_dir: Path
) -> None:
    agent = AgentProcess(state_dir, leader.address)
    await agent.start()
    await leader.registered()
    second = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "llmgw", "agent", "--insecure", "--control", leader.address),
        *("--state-dir", str(state_dir)),
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await second.communicate()
    assert second.returncode == 1
    assert stderr.decode() == (
        f"error: --state-dir {state_dir} is in use by another agent (pid {agent.pid})\n"
    )
    await agent.signal(signal.SIGTERM)


async def test_changes_while_no_leader_is_there_are_in_the_next_registration(
    leader: FakeLeader, state_dir: Path
) -> None:
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        report = await start(leader)
        port = int(leader.address.rpartition(":")[2])
        await leader.stop()
        os.kill(report.pid, signal.SIGKILL)
        (record,) = (state_dir / "shards").iterdir()
        await until(lambda: '"failed"' in record.read_text(), "the agent seeing the engine's end")
        successor = type(leader)(term=6)
        await successor.start(port=port)
        register = await successor.registered()
        assert isinstance(register, Register)
        assert [shard.state for shard in register.shards] == [S.FAILED]
        await successor.stop()
