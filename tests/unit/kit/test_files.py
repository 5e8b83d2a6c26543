"""Atomic files: a crash at any moment leaves the old content or the new one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmgw.kit.files import write_atomically


def test_content_and_mode_are_as_asked(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_atomically(path, b"secret", mode=0o600)
    assert path.read_bytes() == b"secret"
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_but_the_file_is_left(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"one")
    write_atomically(tmp_path / "file", b"two")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"two"


def test_a_crash_before_the_rename_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def crash(*_: object) -> None:
        raise OSError("power failure")

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(OSError, match="power failure"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_leftover_of_a_crash_does_not_get_into_the_next_content(tmp_path: Path) -> None:
    (tmp_path / "file.tmp").write_bytes(b"a long leftover of an earlier crash")
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_content_is_synced_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is the guarantee: a rename that is durable before its content is a torn file."""
    order: list[str] = []
    really_sync, really_replace = os.fsync, Path.replace

    def sync(descriptor: int) -> None:
        kind = "folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "content"  # noqa: PTH112 - a descriptor
        order.append(kind)
        really_sync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        order.append("rename")
        return really_replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    write_atomically(tmp_path / "file", b"x")
    assert order == ["content", "rename", "folder"]


def test_descriptors_are_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count of descriptors
    for _ in range(5):
        write_atomically(tmp_path / "file", b"x")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - likewise
