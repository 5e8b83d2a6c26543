"""Only what cannot have run is sent again, once, and never after an answer began."""

from __future__ import annotations

import pytest

from llmgw.router.core.ejection import Verdict
from llmgw.router.core.retry import Failure, may_retry, verdict_on_status

SAFE = {Failure.NOT_CONNECTED, Failure.UNAVAILABLE}


@pytest.mark.parametrize("failure", Failure)
def test_the_first_attempt(failure: Failure) -> None:
    assert may_retry(failure, attempts=1, answer_begun=False) is (failure in SAFE)


@pytest.mark.parametrize("failure", Failure)
def test_never_a_third_time_and_never_after_a_byte(failure: Failure) -> None:
    assert not may_retry(failure, attempts=2, answer_begun=False)
    assert not may_retry(failure, attempts=1, answer_begun=True)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.SUCCESS),
        (400, Verdict.SUCCESS),
        (429, Verdict.SUCCESS),
        (499, Verdict.SUCCESS),
        (500, Verdict.FAILURE),
        (503, Verdict.FAILURE),
    ],
)
def test_a_4xx_does_not_speak_against_an_engine(status: int, verdict: Verdict) -> None:
    assert verdict_on_status(status) is verdict
