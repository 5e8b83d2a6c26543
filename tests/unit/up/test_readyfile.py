"""The ready-file is exactly what scripts were promised."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from llmgw.up.errors import UpError
from llmgw.up.layout import plan
from llmgw.up.readyfile import (
    forget_ready_file,
    prepare_ready_file,
    ready_document,
    write_ready_file,
)

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT = plan(control_planes=1, agents=1, etcd_members=1)
PIDS = {"etcd-1": 1, "cp-1": 2, "node-1": 3, "router": 4}


def test_the_document() -> None:
    assert ready_document(LAYOUT, PIDS, ["m"]) == {
        "router": "http://127.0.0.1:8080",
        "admin": ["http://127.0.0.1:8081"],
        "control_planes": [
            {
                "id": "cp-1",
                "pid": 2,
                "warden_pid": None,
                "admin": "http://127.0.0.1:8081",
                "agent_address": "127.0.0.1:8443",
            }
        ],
        "agents": [{"node_id": "node-1", "pid": 3}],
        "etcd": {"endpoints": ["127.0.0.1:12379"], "pids": [1]},
        "models": ["m"],
    }


def test_a_part_without_a_pid_is_a_fault_of_ours() -> None:
    with pytest.raises(KeyError):
        ready_document(LAYOUT, {}, [])


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UpError, match=f"--ready-file {tmp_path}/file/ready.json"):
        write_ready_file(tmp_path / "file" / "ready.json", {})


def test_the_file_is_json_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    document = ready_document(LAYOUT, PIDS, ["m"])
    write_ready_file(tmp_path / "ready.json", document)
    assert json.loads((tmp_path / "ready.json").read_text()) == document
    assert [path.name for path in tmp_path.iterdir()] == ["ready.json"]


def test_a_place_that_cannot_be_written_is_known_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "ready.json"):
        with pytest.raises(UpError, match=f"cannot write --ready-file {path}: "):
            prepare_ready_file(path)
        forget_ready_file(path)


def test_what_an_earlier_run_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ready.json"
    prepare_ready_file(path)
    write_ready_file(path, {})
    prepare_ready_file(path)
    assert list(path.parent.iterdir()) == []
