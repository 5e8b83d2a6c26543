"""One agent, real engines, a leader that commands by hand: start, ready, drain, stop, fail."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import aiohttp
import pytest

from llmgw.agent import procfs
from llmgw.domain.messages import (
    AgentHeartbeat,
    DrainShard,
    LogsRequest,
    Provision,
    StartShard,
    StopShard,
)
from llmgw.domain.shard import ShardSpec, ShardState
from tests.support.agents import free_port, is_gone, make_agent, paced_spec, running, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.fake_leader import FakeLeader

S = ShardState


@pytest.fixture
async def attached(leader: FakeLeader, state_dir: Path) -> AsyncIterator[FakeLeader]:
    """A leader with a running agent attached to it."""
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        yield leader


def states(leader: FakeLeader, shard_id: str = "r1-0") -> list[ShardState]:
    seen = [
        up.body.shard.state
        for up in leader.heard
        if hasattr(up.body, "shard") and up.body.shard.spec.shard_id == shard_id
    ]
    return [state for i, state in enumerate(seen) if i == 0 or seen[i - 1] is not state]


async def test_a_shard_goes_from_pending_to_ready_and_answers(attached: FakeLeader) -> None:
    port = free_port()
    spec = paced_spec(port, "--load-s", "0.5")
    result = await attached.send(StartShard(spec, "wanted"))
    assert result.accepted
    ready = await attached.shard("r1-0", S.READY)
    assert states(attached) == [S.PENDING, S.STARTING, S.LOADING, S.READY]
    assert ready.spec == spec
    stat = procfs.read_stat(ready.pid)
    assert stat is not None
    assert ready.process_group == stat.group == stat.session == ready.pid
    assert ready.process_start_ticks == stat.start_ticks
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://127.0.0.1:{port}/v1/chat/completions", json={"model": "paced", "max_tokens": 2}
        ) as answer,
    ):
        assert (await answer.json())["model"] == "paced"


async def test_commands_are_idempotent_and_a_stop_ends_the_group(attached: FakeLeader) -> None:
    spec = paced_spec(free_port(), "--fork-workers", "2", "--ignore-term")
    await attached.send(StartShard(spec, "wanted"))
    first = await attached.shard("r1-0", S.READY)
    again = await attached.send(StartShard(spec, "wanted"))
    assert (again.accepted, again.reason) == (True, "already ready")
    assert len(procfs.group_members(first.process_group)) == 3
    assert (await attached.send(StopShard("r1", "r1-0", "surplus"))).accepted
    stopped = await attached.shard("r1-0", S.STOPPED)
    assert procfs.group_members(first.process_group) == []
    assert stopped.reason == "surplus"
    unknown = await attached.send(StopShard("r1", "r1-0", "surplus"))
    assert (unknown.accepted, unknown.reason) == (True, "no shard r1-0 here")


async def test_a_shard_that_is_being_stopped_cannot_be_started_until_it_is_gone(
    attached: FakeLeader,
) -> None:
    spec = paced_spec(free_port(), "--ignore-term")
    await attached.send(StartShard(spec, "wanted"))
    await attached.shard("r1-0", S.READY)
    await attached.post(StopShard("r1", "r1-0", "surplus"))
    refused = await attached.send(StartShard(spec, "wanted again"))
    assert (refused.accepted, refused.stale_term) == (False, False)
    await attached.shard("r1-0", S.STOPPED)
    assert (await attached.send(StartShard(spec, "wanted again"))).accepted
    await attached.until(lambda: states(attached)[-1] is S.READY)


async def test_a_drain_waits_for_open_connections_only(attached: FakeLeader) -> None:
    port = free_port()
    await attached.send(StartShard(paced_spec(port, "--token-interval-s", "0.3"), "wanted"))
    await attached.shard("r1-0", S.READY)
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        body = {"model": "m", "stream": True, "max_tokens": 6}
        async with session.post(url, json=body) as answer:
            await attached.send(DrainShard("r1", "r1-0", "rolled"))
            text = (await answer.content.read()).decode()
        assert text.count("data: {") == 6
        assert text.endswith("data: [DONE]\n\n")
        assert states(attached)[-1] is S.DRAINING
    await attached.shard("r1-0", S.STOPPED)


async def test_a_drain_ends_at_its_cap(attached: FakeLeader) -> None:
    port = free_port()
    await attached.send(StartShard(paced_spec(port), "wanted"))
    report = await attached.shard("r1-0", S.READY)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    await attached.send(DrainShard("r1", "r1-0", "rolled"))
    await attached.shard("r1-0", S.STOPPED)
    assert is_gone(report.pid)
    writer.close()


async def test_a_stop_cuts_a_drain_short(attached: FakeLeader) -> None:
    port = free_port()
    await attached.send(StartShard(paced_spec(port), "wanted"))
    await attached.shard("r1-0", S.READY)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    loop = asyncio.get_running_loop()
    await attached.send(DrainShard("r1", "r1-0", "rolled"))
    began = loop.time()
    await attached.send(StopShard("r1", "r1-0", "now"))
    await attached.shard("r1-0", S.STOPPED)
    assert loop.time() - began < 2
    writer.close()


def broken(spec: ShardSpec, tmp_path: Path, how: str) -> tuple[ShardSpec, str]:
    """A spec that cannot run, and the reason expected."""
    port = spec.http_port
    if how == "model":
        missing = str(tmp_path / "y.gguf")
        return (
            paced_spec(port, engine="llamacpp", args=(), model_path=missing),
            f"model_path {missing} does not exist on node n1",
        )
    if how == "engine":
        return (
            paced_spec(port, engine="vllm"),
            "unknown engine 'vllm' on node n1; this agent has: command, llamacpp",
        )
    if how == "program":
        return paced_spec(port, args=("no-such-program", "{port}")), "command not found: no-such"
    if how == "exits":
        return (
            paced_spec(port, "--exit-code-at-once", "7"),
            "the engine exited with code 7; last line: fatal: exiting with 7 as asked",
        )
    return paced_spec(port, "--load-s", "60", startup_timeout_s=0.6), "not ready within 0.6 s"


@pytest.mark.parametrize("how", ["model", "engine", "program", "exits", "slow"])
async def test_a_failure_says_why_and_is_not_repeated(
    attached: FakeLeader, tmp_path: Path, how: str
) -> None:
    spec, reason = broken(paced_spec(free_port()), tmp_path, how)
    assert (await attached.send(StartShard(spec, "wanted"))).accepted
    failed = await attached.shard("r1-0", S.FAILED)
    assert failed.reason.startswith(reason)
    if how == "exits":
        assert failed.exit_code == 7
        assert failed.last_output == (
            "Traceback: something the engine says",
            "fatal: exiting with 7 as asked",
        )
    beats = sum(isinstance(up.body, AgentHeartbeat) for up in attached.heard)
    await attached.until(
        lambda: sum(isinstance(up.body, AgentHeartbeat) for up in attached.heard) > beats + 3
    )
    assert states(attached).count(S.FAILED) == 1
    assert states(attached)[-1] is S.FAILED
    if failed.process_group:
        assert procfs.group_members(failed.process_group) == []


async def test_a_taken_port_is_named_before_the_engine_is_started(attached: FakeLeader) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        await attached.send(StartShard(paced_spec(port), "wanted"))
        failed = await attached.shard("r1-0", S.FAILED)
    assert failed.reason.startswith(f"port {port} of 127.0.0.1 is taken")
    assert failed.pid == 0


async def test_a_failed_shard_is_forgotten_by_a_stop_and_may_start_anew(
    attached: FakeLeader, state_dir: Path
) -> None:
    port = free_port()
    await attached.send(StartShard(paced_spec(port, "--exit-code-at-once", "7"), "wanted"))
    await attached.shard("r1-0", S.FAILED)
    assert list((state_dir / "shards").iterdir())
    await attached.send(StopShard("r1", "r1-0", "seen"))
    await attached.shard("r1-0", S.STOPPED)
    assert not list((state_dir / "shards").iterdir())
    await attached.send(StartShard(paced_spec(port), "again"))
    await attached.shard("r1-0", S.READY)


async def test_workers_left_behind_are_gone_before_the_failure_is_told(
    attached: FakeLeader, tmp_path: Path
) -> None:
    """The front process is killed; a worker holds a lock as it would hold a GPU."""
    lock = tmp_path / "gpu"
    spec = paced_spec(free_port(), "--fork-workers", "2", "--worker-lock", str(lock))
    await attached.send(StartShard(spec, "wanted"))
    ready = await attached.shard("r1-0", S.READY)
    os.kill(ready.pid, signal.SIGKILL)
    failed = await attached.shard("r1-0", S.FAILED)
    assert procfs.group_members(ready.process_group) == []
    assert "ended by SIGKILL" in failed.reason
    assert states(attached)[-2:] == [S.DRAINING, S.FAILED]
    # And the next incarnation gets the lock.
    await attached.send(StartShard(spec, "replaced"))
    await attached.until(lambda: states(attached)[-1] is S.READY)
    again = [r for up in attached.heard if (r := getattr(up.body, "shard", None))][-1]
    assert len(procfs.group_members(again.process_group)) == 3


async def test_heartbeats_carry_load_and_a_moving_tick(attached: FakeLeader) -> None:
    await attached.send(StartShard(paced_spec(free_port()), "wanted"))
    await attached.shard("r1-0", S.READY)

    def beats() -> list[AgentHeartbeat]:
        return [up.body for up in attached.heard if isinstance(up.body, AgentHeartbeat)]

    await attached.until(lambda: bool(beats() and beats()[-1].shard_loads))
    last = beats()[-1]
    assert last.shard_loads[0].shard_id == "r1-0"
    assert last.shard_loads[0].memory_bytes
    assert last.load is not None
    assert last.problems is None
    ticks = [beat.loop_tick for beat in beats()]
    assert ticks == sorted(set(ticks))


async def test_a_message_this_agent_does_not_know_is_refused_with_a_reason(
    attached: FakeLeader,
) -> None:
    await attached.post(Provision())
    result = await attached.send(LogsRequest("agent", 10))
    assert not result.accepted
    assert "LogsRequest" in result.reason


async def test_the_environment_of_an_engine_has_the_profiles_and_none_of_the_agents(
    attached: FakeLeader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMGW_TLS_KEY", "secret")
    out = tmp_path / "env.json"
    code = f"import json,os;json.dump(dict(os.environ),open({str(out)!r},'w'))"
    args = (sys.executable, "-c", code)
    spec = paced_spec(free_port(), args=args, env={"HF_HOME": "/w", "LLMGW_LAUNCH_TOKEN": "mine"})
    await attached.send(StartShard(spec, "wanted"))
    await attached.shard("r1-0", S.FAILED)
    await until(out.exists)
    seen = json.loads(out.read_text())
    assert seen["HF_HOME"] == "/w"
    assert seen[procfs.LAUNCH_TOKEN] not in ("", "mine")
    assert "LLMGW_TLS_KEY" not in seen
