"""Whom to dial, whom to attach to, how long to wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.agent.core.dialling import (
    BACKOFF_CAP_S,
    RETRY_AFTER_MAX_S,
    Candidates,
    Target,
    backoff_s,
    targets,
)

A = Target("10.0.0.1:8443", "cp")
B = Target("10.0.0.2:8443", "cp")
C = Target("10.0.0.3:8443", "cp")


def test_every_address_of_every_name_is_dialled() -> None:
    found = targets({"cp:8443": [A, B], "other:8443": [C, A]}, {}, [])
    assert list(found) == [A.address, B.address, C.address]


def test_the_last_good_addresses_serve_when_resolution_fails() -> None:
    assert targets({"cp:8443": None}, {"cp:8443": [A]}, []) == {A.address: A}


def test_an_answer_replaces_the_last_good_one() -> None:
    assert targets({"cp:8443": [B]}, {"cp:8443": [A]}, []) == {B.address: B}


def test_a_hint_adds_an_address_but_does_not_change_a_known_one() -> None:
    hint = Target(A.address, "elsewhere")
    assert targets({"cp:8443": [A]}, {}, [hint, C]) == {A.address: A, C.address: C}


def test_the_highest_term_wins_in_any_order() -> None:
    for order in ([("a", 3), ("b", 5), ("c", 4)], [("b", 5), ("c", 4), ("a", 3)]):
        candidates = Candidates(highest_term=0)
        for address, term in order:
            candidates.accept(address, term)
        assert candidates.best == "b"


def test_nobody_accepting_is_never_settled() -> None:
    assert not Candidates(highest_term=0).settled(silent=0)


def test_silent_addresses_are_waited_for_they_may_have_a_higher_term() -> None:
    for term in (5, 6):
        candidates = Candidates(highest_term=5)
        candidates.accept("a", term)
        assert not candidates.settled(silent=1)
        assert candidates.settled(silent=0)


@pytest.mark.parametrize(
    ("named", "highest", "settled"), [(6, 5, True), (5, 0, False), (6, 7, False)]
)
def test_a_term_that_a_standby_names_is_attached_to_without_waiting_for_the_silent(
    named: int, highest: int, settled: bool
) -> None:
    """A control plane that is being restarted must not hold up a hand-over."""
    candidates = Candidates(highest_term=highest)
    candidates.accept("a", 6)
    candidates.name(named)
    assert candidates.settled(silent=1) is settled


def test_a_term_below_what_is_known_is_never_settled() -> None:
    candidates = Candidates(highest_term=0)
    candidates.accept("a", 5)
    candidates.name(6)
    assert not candidates.settled(silent=0)
    candidates.accept("b", 6)
    assert candidates.settled(silent=0)
    assert candidates.best == "b"


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_is_jittered_from_zero_and_capped(attempt: int, draw: float) -> None:
    assert 0 <= backoff_s(attempt, draw) <= BACKOFF_CAP_S
    assert backoff_s(attempt, 0.0) == 0


def test_backoff_grows_with_failures() -> None:
    delays = [backoff_s(attempt, 0.99) for attempt in range(1, 8)]
    assert delays == sorted(delays)
    assert delays[0] < delays[3] < BACKOFF_CAP_S


@given(st.floats(0, 1e6), st.floats(0, 1, exclude_max=True))
def test_a_retry_after_is_honoured_up_to_its_bound(retry_after_s: float, draw: float) -> None:
    delay = backoff_s(1, draw, retry_after_s)
    assert delay >= min(retry_after_s, RETRY_AFTER_MAX_S)
    assert delay <= RETRY_AFTER_MAX_S + BACKOFF_CAP_S
