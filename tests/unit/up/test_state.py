"""The state directory: one `up` at a time, and what a later one has to respect."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmgw.up.errors import InputError, UpError
from llmgw.up.state import (
    LOG_BYTES_MAX,
    Earlier,
    StateDir,
    check_etcd_fits,
    default_state_dir,
)


def test_a_second_up_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    first = StateDir(tmp_path / "state")
    with pytest.raises(UpError, match=rf"\(pid {os.getpid()}\).*{tmp_path}/state"):
        StateDir(tmp_path / "state")
    StateDir(tmp_path / "other").close()
    first.close()
    StateDir(tmp_path / "state").close()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UpError, match=f"--state-dir {tmp_path}/file/x"):
        StateDir(tmp_path / "file" / "x")


def test_what_was_remembered_is_known_later(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    assert state.earlier() is None
    state.remember(Earlier((12380,), "127.0.1"))
    assert state.earlier() == Earlier((12380,), "127.0.1")
    state.close()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"etcd_peer_ports": 3}', b"\xff"])
def test_an_unreadable_record_counts_as_none(tmp_path: Path, content: bytes) -> None:
    state = StateDir(tmp_path)
    (tmp_path / "up.json").write_bytes(content)
    assert state.earlier() is None
    state.close()


@pytest.mark.parametrize(
    ("before", "now"),
    [(None, (1,)), ((1,), (1,)), ((1,), (2,)), ((1, 2, 3), (1, 2, 3))],
)
def test_an_etcd_that_fits(before: tuple[int, ...] | None, now: tuple[int, ...]) -> None:
    """One member finds itself on any port; several know each other by theirs."""
    check_etcd_fits(Earlier(before, "") if before else None, now)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ((1,), (1, 2, 3), "use --etcd-members 1"),
        ((1, 2, 3), (1,), "use --etcd-members 3"),
        ((1, 2, 3), (4, 5, 6), "--port-base"),
    ],
)
def test_another_etcd_than_the_one_whose_data_lies_there_is_refused(
    before: tuple[int, ...], now: tuple[int, ...], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        check_etcd_fits(Earlier(before, ""), now)


def test_logs_are_appended_and_put_aside_when_large(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    for text in (b"one\n", b"two\n"):
        descriptor = state.open_log("cp-1")
        os.write(descriptor, text)
        os.close(descriptor)
    log = tmp_path / "logs" / "cp-1.log"
    assert log.read_bytes() == b"one\ntwo\n"
    os.truncate(log, LOG_BYTES_MAX + 1)
    os.close(state.open_log("cp-1"))
    assert log.stat().st_size == 0
    assert (tmp_path / "logs" / "cp-1.log.1").stat().st_size == LOG_BYTES_MAX + 1
    state.close()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "/home/x/.local/state/llmgw/up"),
        ({"XDG_STATE_HOME": "/var/state"}, "/var/state/llmgw/up"),
        ({"XDG_STATE_HOME": ""}, "/home/x/.local/state/llmgw/up"),
        ({"XDG_STATE_HOME": "relative"}, "/home/x/.local/state/llmgw/up"),
    ],
)
def test_the_default_place(environment: dict[str, str], expected: str) -> None:
    assert default_state_dir(environment, Path("/home/x")) == Path(expected)


def test_files_inside_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    """Left by another user, for one; a folder in their place is refused to root as well."""
    state = StateDir(tmp_path)
    (tmp_path / "up.json.tmp").mkdir()
    with pytest.raises(UpError, match=rf"--state-dir {tmp_path}: .*up\.json\.tmp: "):
        state.remember(Earlier((12380,), "127.0.1"))
    (state.logs / "cp-1.log").mkdir()
    with pytest.raises(UpError, match=rf"--state-dir {tmp_path}: .*cp-1\.log: "):
        state.open_log("cp-1")
    state.close()
