"""The agent's command line: settings, the lock, and one clear line for each mistake."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from llmgw.agent import main
from llmgw.agent.errors import StateDirError
from llmgw.agent.main import AgentSettings, command, locked, split_address
from llmgw.kit.settings import SettingsError, load_settings

if TYPE_CHECKING:
    from pathlib import Path

GIVEN = {"control": ["cp:8443"], "insecure": True}


def settings(flags: dict[str, Any], environment: dict[str, str] | None = None) -> AgentSettings:
    return load_settings(AgentSettings, flags, environment=environment or {})


def test_defaults() -> None:
    found = settings(GIVEN)
    assert found.node_id == os.uname().nodename
    assert found.address == "127.0.0.1"
    assert (found.stop_grace_s, found.drain_timeout_s) == (15, 120)


def test_the_environment_takes_commas_and_flags_win() -> None:
    environment = {"LLMGW_CONTROL": "a:1,b:2", "LLMGW_NODE_ID": "e", "LLMGW_INSECURE": "true"}
    found = settings({"node_id": "f"}, environment)
    assert found.control == ("a:1", "b:2")
    assert found.node_id == "f"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"insecure": True}, "--control HOST:PORT"),
        ({"control": ["cp:8443"]}, "--tls-ca, --tls-cert and --tls-key, or --insecure"),
        ({**GIVEN, "control": ["cp"]}, "'cp' is not HOST:PORT"),
        ({**GIVEN, "label": ["rack"]}, "'rack' is not K=V"),
        ({**GIVEN, "node_id": ""}, "--node-id"),
        ({**GIVEN, "log_format": "xml"}, "--log-format"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings(flags)


def test_stopping_engines_needs_no_control_plane() -> None:
    assert settings({"stop_engines": True}).stop_engines


@pytest.mark.parametrize(
    ("text", "parts"),
    [("cp:1", ("cp", 1)), ("10.0.0.1:8443", ("10.0.0.1", 8443)), ("[::1]:80", ("::1", 80))],
)
def test_addresses_are_split(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts


@pytest.mark.parametrize("text", ["", "cp", ":1", "cp:", "cp:x", "cp:70000", "::1:80", "[]:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        split_address(text)


def test_one_agent_per_state_directory(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(StateDirError, match=rf"in use by another agent \(pid {os.getpid()}\)"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--insecure"], 2, "say where the control planes are"),
        (
            ["--control", "x:1", "--tls-ca", "/no", "--tls-cert", "/no", "--tls-key", "/no"],
            2,
            "/no",
        ),
        (["--control", "x:1", "--insecure", "--state-dir", "/proc/x"], 1, "--state-dir /proc/x"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, line: str
) -> None:
    # Logs would stay bound to the runner's standard error, which is closed afterwards.
    monkeypatch.setattr(main, "configure_logs", lambda *_: None)
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code
    assert result.stderr.startswith("error: ")
    assert line in result.stderr
    assert result.stderr.count("\n") == 1
