"""The end of an engine's output: enough to understand, never too much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmgw.agent.output import LINE_CHARACTERS_MAX, LINES_MAX, last_lines

if TYPE_CHECKING:
    from pathlib import Path


def test_the_last_lines_come_oldest_first(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {number}\n" for number in range(1_000)))
    lines = last_lines(path)
    assert len(lines) == LINES_MAX
    assert (lines[0], lines[-1]) == ("line 800", "line 999")


def test_long_lines_are_cut_and_marked(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * 70_000 + "\nafter\n")
    assert last_lines(path) == ("x" * LINE_CHARACTERS_MAX + " [...]", "after")


def test_a_huge_file_is_read_from_its_end_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"y" * 5_000_000 + b"\nafter\n")
    lines = last_lines(path)
    assert lines[-1] == "after"
    assert all(len(line) < LINE_CHARACTERS_MAX + 10 for line in lines)


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe ok")
    assert last_lines(path) == ("\ufffd\ufffd ok",)


def test_no_file_is_no_output(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "none") == ()
