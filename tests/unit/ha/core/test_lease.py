"""Lease arithmetic: the deadline counts from sending, and impossible timings are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.core.lease import Timing, backoff_s, trusted_until_s


def test_a_lease_is_trusted_from_the_moment_its_renewal_was_sent() -> None:
    assert trusted_until_s(sent_s=100.0, ttl_s=5.0, margin_s=0.5) == 104.5


def test_times_that_are_not_given_follow_from_the_ttl() -> None:
    timing = Timing(lease_ttl_s=6)
    times = (timing.renew_interval_s, timing.call_timeout_s, timing.margin_s)
    assert times == pytest.approx((1.0, 1.0, 0.6))


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"call_timeout_s": 1.0}, "more than a sixth"),
        ({"renew_interval_s": 4.0}, "does not outlast"),
        ({"margin_s": 4.0}, "does not outlast"),
        ({"renew_interval_s": -1.0}, "does not outlast"),
    ],
)
def test_timings_that_cannot_work_are_refused(times: dict[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Timing(lease_ttl_s=5.0, **times)


@given(losses=st.integers(1, 10_000), jitter=st.floats(0, 1, exclude_max=True))
def test_back_off_grows_spreads_and_is_bounded(losses: int, jitter: float) -> None:
    timing = Timing()
    pause_s = backoff_s(losses, jitter, timing)
    full_s = min(timing.backoff_max_s, timing.backoff_first_s * 2 ** min(losses - 1, 20))
    assert full_s / 2 <= pause_s <= full_s
