"""Engine `command`: argv from a spec, and what its answers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from llmgw.agent.engines.base import Health
from llmgw.agent.engines.command import CommandEngine
from llmgw.agent.errors import StartError
from llmgw.domain.shard import ProfileSpec, ShardSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def spec(*args: str, model_path: str = "", env: Mapping[str, str] | None = None) -> ShardSpec:
    profile = ProfileSpec(
        "p",
        "command",
        args=args,
        env=env or {},
        model_path=model_path,
        served_model_name="served",
    )
    return ShardSpec(
        "r1", "s1", "m", profile, "hash", http_port=20_001, gpu_uuids=("GPU-a", "GPU-b")
    )


def test_every_placeholder_is_filled_in_args_and_env() -> None:
    wanted = ("x", "--at={host}:{port}", "{model_path}", "{gpus}", "{served_model_name}")
    launch = CommandEngine().launch(
        spec(*wanted, "{replica_id}", model_path="org/m", env={"P": "{port}"}), "10.0.0.7"
    )
    assert launch.argv == ("x", "--at=10.0.0.7:20001", "org/m", "GPU-a,GPU-b", "served", "r1")
    assert launch.environment == {"P": "20001"}


def test_other_braces_stay_as_they_are() -> None:
    args = ("x", '{"a": {"port": 1}}', "{}", "{nope}", "{{port}}")
    assert CommandEngine().launch(spec(*args), "h").argv == (
        *("x", '{"a": {"port": 1}}', "{}", "{nope}"),
        "{20001}",
    )


def test_facts_are_not_filled_in_twice() -> None:
    launch = CommandEngine().launch(spec("x", "{model_path}", model_path="{port}"), "h")
    assert launch.argv == ("x", "{port}")


def test_no_args_is_an_error() -> None:
    with pytest.raises(StartError, match="profile p has no args"):
        CommandEngine().launch(spec(), "h")


def test_an_absolute_model_path_must_exist(tmp_path: Path) -> None:
    missing = tmp_path / "no.gguf"
    with pytest.raises(StartError, match=f"model_path {missing} does not exist"):
        CommandEngine().launch(spec("x", model_path=str(missing)), "h")
    missing.touch()
    assert CommandEngine().launch(spec("x", model_path=str(missing)), "h").argv == ("x",)


@pytest.mark.parametrize(
    ("answers", "health"),
    [
        ({}, Health.SILENT),
        ({"/health": 200}, Health.READY),
        ({"/health": 204}, Health.READY),
        ({"/health": 401}, Health.READY),
        ({"/health": 503}, Health.LOADING),
        ({"/health": 500}, Health.LOADING),
        ({"/health": 404, "/v1/models": 200}, Health.READY),
        ({"/health": 405, "/v1/models": 503}, Health.LOADING),
        ({"/health": 404, "/v1/models": 404}, Health.READY),
        ({"/health": 404}, Health.SILENT),
    ],
)
async def test_answers_tell_silent_loading_and_ready_apart(
    answers: Mapping[str, int], health: Health
) -> None:
    async def status_of(url: str) -> int | None:
        return answers.get(url.removeprefix("http://h:1"))

    assert await CommandEngine().health("http://h:1", status_of) is health
