"""The term on disk: durable before it counts, and never going back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from llmgw.agent.errors import StateDirError
from llmgw.agent.terms import Terms
from llmgw.kit.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path

SILENT = Journal(None)


def test_a_fresh_state_directory_has_accepted_nothing(tmp_path: Path) -> None:
    assert Terms(tmp_path / "term", SILENT).highest == 0


def test_a_later_agent_reads_what_an_earlier_one_accepted(tmp_path: Path) -> None:
    Terms(tmp_path / "term", SILENT).accept(7)
    assert Terms(tmp_path / "term", SILENT).highest == 7


def test_terms_do_not_go_back(tmp_path: Path) -> None:
    terms = Terms(tmp_path / "term", SILENT)
    terms.accept(7)
    terms.accept(3)
    assert terms.highest == 7
    assert Terms(tmp_path / "term", SILENT).highest == 7


def test_a_term_counts_only_once_it_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = Terms(tmp_path / "term", SILENT)
    seen: list[int] = []
    sync = os.fsync

    def watch(descriptor: int) -> None:
        seen.append(terms.highest)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    terms.accept(7)
    assert seen
    assert set(seen) == {0}


def test_a_failed_write_leaves_the_term_as_it_was(tmp_path: Path) -> None:
    terms = Terms(tmp_path / "term", SILENT)
    (tmp_path / "term.tmp").mkdir()
    with pytest.raises(OSError, match="directory"):
        terms.accept(7)
    assert terms.highest == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"term": 7}',
        b'{"version": 2, "term": 7}',
        *(b'{"version": 1, "term": %s}' % term for term in (b'"7"', b"-1", b"true", b"1e400")),
        b'{"version": 1, "term": %s}' % (b"9" * 30),
    ],
)
def test_an_unreadable_term_is_an_error_never_a_guess(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "term").write_bytes(content)
    with pytest.raises(StateDirError, match="cannot read the term"):
        Terms(tmp_path / "term", SILENT)
