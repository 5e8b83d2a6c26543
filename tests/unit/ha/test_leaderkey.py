"""The election's keys: what is written can be read, and what cannot be read harms nobody."""

from __future__ import annotations

import pytest

from ha.leaderkey import LeaderInfo, decode_leader, decode_term, encode_leader
from ha.store import RejectedError


def test_a_leader_key_is_read_as_it_was_written() -> None:
    facts = {"address": "h:1", "admin": "h:2"}
    assert decode_leader(encode_leader("a", 7, facts), 3) == LeaderInfo("a", 7, facts, 3)


def test_facts_cannot_pose_as_id_or_term() -> None:
    info = decode_leader(encode_leader("a", 7, {"id": "b", "term": "9"}), 3)
    assert (info.id, info.term) == ("a", 7)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b"null",
        b'{"id": 4, "term": "x"}',
        b'{"term": true}',
        b'{"term": -1}',
        b'{"term": 1e400}',
        b'{"term": 9%s}' % (b"9" * 30),
        b'{"facts": {"a": 1}}',
    ],
)
def test_an_unreadable_leader_is_a_leader_without_name_or_term(value: bytes) -> None:
    assert decode_leader(value, 3) == LeaderInfo("", 0, {}, 3)


def test_a_term_is_a_plain_decimal_number() -> None:
    assert decode_term(b"42") == 42
    for text in (b"", b"-1", b"4.0", b" 4", b"\xff", "٤".encode()):
        with pytest.raises(RejectedError, match="not a number"):
            decode_term(text)


@pytest.mark.parametrize("digits", [20, 5_000])
def test_a_term_that_no_election_can_have_reached_is_refused(digits: int) -> None:
    with pytest.raises(RejectedError, match="above"):
        decode_term(b"9" * digits)
