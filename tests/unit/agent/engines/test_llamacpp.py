"""Engine `llamacpp`: argv from a spec, the launcher's options, and what its answers mean."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from llmgw.agent.engines import installed_engines
from llmgw.agent.engines.base import Health
from llmgw.agent.engines.llamacpp import LAUNCHER, LlamaCppEngine
from llmgw.agent.engines.llamacpp_launcher import build_parser, fill_params
from llmgw.agent.errors import StartError
from llmgw.domain.shard import ProfileSpec, ShardSpec

if TYPE_CHECKING:
    from pathlib import Path


def spec(model_path: Path | str, *args: str) -> ShardSpec:
    profile = ProfileSpec(
        "p", "llamacpp", args=args, model_path=str(model_path), served_model_name="org/m"
    )
    return ShardSpec("r1", "s1", "m", profile, "hash", http_port=20_001)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.touch()
    return path


def params() -> SimpleNamespace:
    return SimpleNamespace(
        model=SimpleNamespace(path=""),
        cpuparams=SimpleNamespace(n_threads=0),
        cpuparams_batch=SimpleNamespace(n_threads=0),
    )


def options_of(argv: tuple[str, ...]) -> SimpleNamespace:
    """What the launcher would set for the arguments after `python -m launcher`."""
    filled = params()
    fill_params(filled, build_parser().parse_args(argv[3:]))
    return filled


def test_the_launcher_is_run_with_the_shards_facts(gguf: Path) -> None:
    launch = LlamaCppEngine().launch(spec(gguf), "127.0.1.1")
    assert launch.argv[:3] == (sys.executable, "-m", LAUNCHER)
    filled = options_of(launch.argv)
    assert filled.model.path == str(gguf)
    assert (filled.hostnames, filled.port) == (["127.0.1.1"], 20_001)
    assert filled.model_alias == {"org/m"}
    assert filled.endpoint_metrics is True


def test_without_args_there_are_eight_slots_with_a_sane_context(gguf: Path) -> None:
    filled = options_of(LlamaCppEngine().launch(spec(gguf), "h").argv)
    assert (filled.n_parallel, filled.n_ctx) == (8, 16_384)


@pytest.mark.parametrize(
    ("args", "slots", "context"),
    [
        (("--ctx-size", "2048", "--parallel", "4", "--threads", "2"), 4, 2_048),
        (("-c", "4096"), 8, 4_096),
        (("--ctx-size=4096",), 8, 4_096),
        (("-np", "2"), 2, None),
    ],
)
def test_args_of_the_profile_win(
    gguf: Path, args: tuple[str, ...], slots: int, context: int | None
) -> None:
    filled = options_of(LlamaCppEngine().launch(spec(gguf, *args), "h").argv)
    assert filled.n_parallel == slots
    assert getattr(filled, "n_ctx", None) == context
    assert filled.cpuparams.n_threads == (2 if "--threads" in args else 0)


@pytest.mark.parametrize("args", [("--no-such-option",), ("--ctx", "1"), ("--parallel", "many")])
def test_an_unknown_option_ends_the_launcher_with_a_clear_error(
    args: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(["--model", "m", "--port", "1", *args])
    assert ended.value.code == 2
    assert args[0] in capsys.readouterr().err


def test_a_model_that_does_not_exist_is_named() -> None:
    with pytest.raises(StartError, match=r"model_path /x/y\.gguf does not exist"):
        LlamaCppEngine().launch(spec("/x/y.gguf"), "h")


def test_no_model_path_names_profile_and_model() -> None:
    with pytest.raises(StartError, match="profile p of model m has no model_path"):
        LlamaCppEngine().launch(spec(""), "h")


def test_a_llama_server_on_the_path_serves_when_the_wheel_is_missing(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda _: "/opt/llama-server")
    launch = LlamaCppEngine().launch(spec(gguf, "--threads", "2"), "h")
    assert launch.argv[:3] == ("/opt/llama-server", "--model", str(gguf))
    assert launch.argv[-2:] == ("--threads", "2")


def test_without_wheel_and_binary_the_engine_is_not_here(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert LlamaCppEngine().installation() is None
    assert sorted(installed_engines()) == ["command"]
    with pytest.raises(StartError, match="neither the xllamacpp wheel nor llama-server"):
        LlamaCppEngine().launch(spec(gguf), "h")


@pytest.mark.parametrize(
    ("status", "health"),
    [(None, Health.SILENT), (503, Health.LOADING), (200, Health.READY), (500, Health.LOADING)],
)
async def test_answers_tell_silent_loading_and_ready_apart(
    status: int | None, health: Health
) -> None:
    async def status_of(url: str) -> int | None:
        assert url == "http://h:1/health"
        return status

    assert await LlamaCppEngine().health("http://h:1", status_of) is health
