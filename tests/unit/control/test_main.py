"""The command line: what is wrong is said in one line that names the flag."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from llmgw.control.main import _told, command

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE = ["--etcd", "127.0.0.1:1", "--insecure"]


@pytest.fixture(autouse=True)
def _logs_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmgw.control.main.configure_logs", lambda *_: None)


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def run(*args: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, list(args))
    return result.exit_code, result.stderr


@pytest.mark.parametrize("flag", ["--agent-listen", "--admin-listen"])
def test_a_taken_port_names_address_and_flag(taken: str, flag: str) -> None:
    other = "--admin-listen" if flag == "--agent-listen" else "--agent-listen"
    code, stderr = run(*BASE, flag, taken, other, "127.0.0.1:0")
    assert code == 1
    errors = [line for line in stderr.splitlines() if line.startswith("error:")]
    assert errors == [f"error: cannot listen on {taken} ({flag}): Address already in use"]
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--insecure"], "--etcd"),
        (["--etcd", "127.0.0.1:1"], "or --insecure"),
        ([*BASE, "--tls-ca", "ca.pem"], "or --insecure"),
        ([*BASE, "--lease-ttl-s", "1"], "--lease-ttl-s"),
        ([*BASE, "--suspect-after-s", "9", "--lost-after-s", "3"], "--lost-after-s"),
        ([*BASE, "--engine-port-first", "60000"], "above port 65535"),
        ([*BASE, "--log-format", "xml"], "--log-format"),
    ],
)
def test_bad_settings_exit_2_with_one_line(args: list[str], says: str) -> None:
    code, stderr = run(*args)
    assert code == 2
    assert stderr.startswith("error: ")
    assert says in stderr
    assert len(stderr.splitlines()) == 1


def test_an_address_that_is_none_is_said_so() -> None:
    code, stderr = run(*BASE, "--agent-listen", "nonsense", "--admin-listen", "127.0.0.1:0")
    assert code == 2
    assert "--agent-listen 'nonsense' is not HOST:PORT" in stderr


def test_any_address_is_not_what_others_are_told() -> None:
    assert _told("127.0.0.1:0", 8443) == "127.0.0.1:8443"
    assert _told("[::1]:0", 8443) == "[::1]:8443"
    assert _told("0.0.0.0:0", 8443) == f"{socket.gethostname()}:8443"
