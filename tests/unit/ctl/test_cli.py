"""The `llmgw` command: quick, lazy, and clear about mistakes."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from llmgw import cli


def test_ctl_loads_neither_grpc_nor_the_schema() -> None:
    """`llmgw ctl` has to answer at once; gRPC alone takes longer to load than it runs."""
    script = (
        "import sys; from llmgw import cli; cli.run(['ctl', 'status', '--help']);"
        "print([m for m in ('grpc', 'aiohttp', 'llmgw.domain.catalog') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=30
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_overview_names_every_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in ("up", "control", "agent", "router", "ctl"))


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"llmgw {version('llmgw')}\n"


def test_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "llmgw", "--version"],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout == f"llmgw {version('llmgw')}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nosuch"], "'nosuch'"),
        (["ctl", "nosuch"], "'nosuch'"),
        (["ctl", "apply"], "--file"),
        (["ctl", "status", "--nosuch"], "--nosuch"),
        (["ctl", "status", "-o", "xml"], "xml"),
        (["up", "--agents", "many"], "--agents"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert "--help" in line


@pytest.mark.parametrize("arguments", [[], ["ctl"]])
def test_without_a_command_the_help_is_shown(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize("program", ["up", "ctl"])
def test_help_keeps_the_lines_of_its_examples(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([program, "--help"]) == 0
    out = capsys.readouterr().out
    assert "\\b" not in out
    assert f"\n    llmgw {program} " in out


def test_the_exit_codes_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["ctl", "--help"])
    out = capsys.readouterr().out
    for code in range(5):
        assert f"\n    {code}  " in out


def test_a_result_that_cannot_be_written_is_one_line() -> None:
    """A full disk, for one."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "llmgw", "--version"],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
        )
    assert done.returncode == 1
    assert done.stderr == "error: no space left on device\n"
