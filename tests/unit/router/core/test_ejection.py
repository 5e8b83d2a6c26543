"""Consecutive failures eject, a probe at a time brings back, and nothing else does either."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router.core.ejection import (
    GOOD_STANDING,
    EjectionPolicy,
    Standing,
    Verdict,
    in_service,
    on_chosen,
    on_verdict,
)

POLICY = EjectionPolicy(failures_max=3, backoff_first_s=1.0, backoff_max_s=5.0)


def _after(verdicts: list[Verdict], standing: Standing = GOOD_STANDING) -> Standing:
    for verdict in verdicts:
        standing = on_verdict(standing, verdict, 0.0, POLICY, probe=False)
    return standing


def test_only_consecutive_failures_eject() -> None:
    failure, success = Verdict.FAILURE, Verdict.SUCCESS
    assert in_service(_after([failure, failure, success, failure, failure]), 0.0)
    assert not in_service(_after([failure, failure, failure]), 0.0)


def test_what_ends_without_verdict_neither_counts_nor_resets() -> None:
    failure, none = Verdict.FAILURE, Verdict.NONE
    assert in_service(_after([none] * 10), 0.0)
    assert not in_service(_after([failure, none, failure, none, failure]), 0.0)


def test_after_the_back_off_one_probe_at_a_time_is_let_through() -> None:
    ejected = _after([Verdict.FAILURE] * 3)
    assert not in_service(ejected, 0.99)
    assert in_service(ejected, 1.0)
    probing, probe = on_chosen(ejected, 1.0)
    assert probe
    assert not in_service(probing, 1.0)
    back = on_verdict(probing, Verdict.SUCCESS, 1.5, POLICY, probe=True)
    assert back == GOOD_STANDING


def test_failed_probes_double_the_back_off_up_to_its_limit() -> None:
    standing, now_s = _after([Verdict.FAILURE] * 3), 0.0
    waits = []
    for _ in range(5):
        until_s = standing.ejected_until_s
        assert until_s is not None
        waits.append(until_s - now_s)
        now_s = until_s
        standing, probe = on_chosen(standing, now_s)
        standing = on_verdict(standing, Verdict.FAILURE, now_s, POLICY, probe=probe)
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_probe_whose_client_left_frees_the_way_for_the_next() -> None:
    probing, probe = on_chosen(_after([Verdict.FAILURE] * 3), 1.0)
    freed = on_verdict(probing, Verdict.NONE, 1.0, POLICY, probe=probe)
    assert in_service(freed, 1.0)
    assert freed.ejected_until_s is not None


def test_stragglers_neither_lengthen_the_back_off_nor_end_a_probe() -> None:
    ejected = _after([Verdict.FAILURE] * 3)
    assert _after([Verdict.FAILURE] * 150, ejected) == ejected
    probing, _ = on_chosen(ejected, 1.0)
    assert on_verdict(probing, Verdict.FAILURE, 1.0, POLICY, probe=False) == probing
    assert on_verdict(probing, Verdict.NONE, 1.0, POLICY, probe=False) == probing


def test_who_is_tried_while_ejected_is_no_probe_and_may_prove_itself() -> None:
    ejected = _after([Verdict.FAILURE] * 3)
    standing, probe = on_chosen(ejected, 0.5)
    assert (standing, probe) == (ejected, False)
    assert on_verdict(ejected, Verdict.SUCCESS, 0.5, POLICY, probe=False) == GOOD_STANDING


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(Verdict), st.floats(0, 10))))
def test_whatever_happens_an_endpoint_comes_back(steps: list[tuple[Verdict, float]]) -> None:
    standing, now_s = GOOD_STANDING, 0.0
    for verdict, wait_s in steps:
        now_s += wait_s
        if in_service(standing, now_s):
            standing, probe = on_chosen(standing, now_s)
            standing = on_verdict(standing, verdict, now_s, POLICY, probe=probe)
    assert not standing.probing
    assert in_service(standing, now_s + POLICY.backoff_max_s)
