"""Ports are looked at before anything starts; what is left is found by its marker."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from llmgw.up.admin import Admin
from llmgw.up.bringup import _progress
from llmgw.up.console import Console
from llmgw.up.errors import UpError
from llmgw.up.layout import Listener
from llmgw.up.parts import MARKER
from llmgw.up.system import check_free, kill_marked, marked_processes
from tests.support.fake_admin import FakeAdmin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_taken_port_names_itself_whose_it_is_and_the_way_out() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(UpError) as caught:
            check_free([Listener("127.0.0.1", port, "router")])
        assert str(caught.value) == (
            f"port {port} (router) is taken by another program; use --port-base"
        )
        # Another loopback address is another place.
        check_free([Listener("127.0.0.9", port, "admin of cp-2")])
    check_free([Listener("127.0.0.1", port, "router")])


def test_an_address_this_machine_does_not_have_is_said_differently() -> None:
    with pytest.raises(UpError, match=r"cannot listen on 192\.0\.2\.1:1234 \(x\)"):
        check_free([Listener("192.0.2.1", 1234, "x")])


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the marker, as an engine is: a grandchild of nobody we watch."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env={**os.environ, MARKER: str(tmp_path / "state")},
    )
    yield process
    process.kill()
    process.wait()


def test_what_is_left_is_found_by_the_marker_and_nothing_else_is(
    tmp_path: Path, marked: subprocess.Popen[bytes]
) -> None:
    assert marked_processes(tmp_path / "state") == [marked.pid]
    assert marked_processes(tmp_path / "stat") == []
    assert kill_marked(tmp_path / "state", besides={marked.pid}) == 0
    assert marked.poll() is None
    assert kill_marked(tmp_path / "state") == 1
    assert marked.wait(5) == -signal.SIGKILL


def entry(ready: int = 0, reason: str = "") -> dict[str, Any]:
    return {"name": "m", "replicas_ready": ready, "replicas_wanted": 1, "reason": reason}


def replica(state: str, reason: str = "", model: str = "m") -> dict[str, Any]:
    return {"model": model, "state": state, "node": "node-1", "reason": reason}


@pytest.mark.parametrize(
    ("model", "replicas", "said"),
    [
        (None, [], "waiting for the control plane to see it"),
        (entry(), [], "waiting to be placed ..."),
        (entry(reason="no node has sglang"), [], "no node has sglang"),
        (entry(), [replica("loading")], "loading on node-1 ..."),
        (entry(), [replica("loading", model="other")], "waiting to be placed ..."),
        (entry(ready=1), [replica("ready")], "ready"),
        (entry(), [replica("starting"), replica("failed", "exit 3")], "failed: exit 3"),
    ],
)
def test_how_far_a_model_is_in_a_few_words(
    model: dict[str, Any] | None, replicas: list[dict[str, Any]], said: str
) -> None:
    assert _progress(model, replicas) == said


def test_a_reader_that_went_away_does_not_stop_a_system(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Broken())
    Console().say("is anybody there?")


async def test_the_status_is_taken_from_whoever_knows_the_leaders_view() -> None:
    lost, knows = FakeAdmin(), FakeAdmin()
    lost.on("GET /v1/status", 200, {"id": "cp-1", "agents": None})
    knows.on("GET /v1/status", 200, {"id": "cp-2", "agents": []})
    try:
        async with aiohttp.ClientSession() as session:
            admin = Admin(session, ["http://127.0.0.1:1", lost.url, knows.url])
            assert await admin.status() == {"id": "cp-2", "agents": []}
            assert await admin.catalog() is None
            assert await Admin(session, [lost.url]).status() is None
    finally:
        lost.stop()
        knows.stop()
