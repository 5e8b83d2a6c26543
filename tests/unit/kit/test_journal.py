"""Journals: one whole JSON line an event, in order, appended to what was there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ha.clock import BootClock
from llmgw.kit.journal import Journal
from llmgw.kit.logs import configure_logs

if TYPE_CHECKING:
    import pytest


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_event_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal.jsonl"
    journal = Journal(path, node_id="n1")
    before_s = BootClock().now_s()
    journal.write("term", term=3)
    (record,) = records(path)
    assert before_s <= record.pop("boot_s") <= BootClock().now_s()
    assert record == {"event": "term", "node_id": "n1", "term": 3}
    journal.close()


def test_a_restarted_process_appends(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for number in range(2):
        journal = Journal(path)
        journal.write("start", number=number)
        journal.close()
    assert [record["number"] for record in records(path)] == [0, 1]


def test_two_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    one, two = Journal(path, who="one"), Journal(path, who="two")
    for number in range(50):
        one.write("event", text="x" * 500, number=number)
        two.write("event", text="y" * 500, number=number)
    assert len(records(path)) == 100
    one.close()
    two.close()


def test_a_newline_in_a_fact_does_not_break_the_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("shard", reason="first\nsecond")
    journal.close()
    assert [r["reason"] for r in records(tmp_path / "journal.jsonl")] == ["first\nsecond"]


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    journal = Journal(None, node_id="n1")
    journal.write("term", term=3)
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_after_close_nothing_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.close()
    journal.close()
    journal.write("late")
    assert (tmp_path / "journal.jsonl").read_bytes() == b""


def test_a_full_disk_costs_records_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("agent", "json")
    journal = Journal(Path("/dev/full"))
    journal.write("one")
    journal.write("two")
    journal.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left" in json.loads(line)["reason"]


def test_a_record_after_a_torn_one_stands_on_a_line_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    whole = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole(file, data[:5]))
    journal.write("torn")
    monkeypatch.setattr(os, "write", whole)
    journal.write("whole")
    journal.close()
    torn, line = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert len(torn) == 5
    assert json.loads(line)["event"] == "whole"
