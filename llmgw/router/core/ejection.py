"""Decides when an endpoint that keeps failing gets no more requests, and when it is tried again.

After `failures_max` consecutive failures an endpoint is ejected for a back-off. Then one request
at a time is let through as a probe: if it succeeds the endpoint is in service again, if it fails
the back-off doubles. What ends without a verdict (the client left) changes nothing, but frees
the probe. Failures of requests that were under way when the endpoint was ejected do not lengthen
the back-off. What counts as a failure is decided in `retry`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class EjectionPolicy:
    """Limits: consecutive failures before ejection, first and longest back-off in seconds."""

    failures_max: int = 3
    backoff_first_s: float = 1.0
    backoff_max_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Standing:
    """How an endpoint stands. `ejected_until_s` None: in service."""

    failures: int = 0
    ejected_until_s: float | None = None
    backoff_s: float = 0.0
    probing: bool = False


class Verdict(StrEnum):
    """How a request to an endpoint ended, as far as the endpoint's standing goes."""

    SUCCESS = "success"
    FAILURE = "failure"
    NONE = "none"


GOOD_STANDING = Standing()


def in_service(standing: Standing, now_s: float) -> bool:
    """Whether the endpoint may get a request now, be it as a probe."""
    if standing.ejected_until_s is None:
        return True
    return now_s >= standing.ejected_until_s and not standing.probing


def on_chosen(standing: Standing, now_s: float) -> tuple[Standing, bool]:
    """The endpoint was chosen; returns its standing and whether this request is the probe."""
    if standing.ejected_until_s is not None and in_service(standing, now_s):
        return replace(standing, probing=True), True
    return standing, False


def on_verdict(
    standing: Standing, verdict: Verdict, now_s: float, policy: EjectionPolicy, *, probe: bool
) -> Standing:
    """A request ended; `probe` is what `on_chosen` said about it."""
    if verdict is Verdict.SUCCESS:
        return GOOD_STANDING
    if verdict is Verdict.NONE:
        return replace(standing, probing=False) if probe else standing
    if standing.ejected_until_s is not None:
        if not probe:
            return standing
        return _ejected(standing, min(standing.backoff_s * 2, policy.backoff_max_s), now_s)
    failures = standing.failures + 1
    if failures < policy.failures_max:
        return replace(standing, failures=failures)
    return _ejected(replace(standing, failures=failures), policy.backoff_first_s, now_s)


def _ejected(standing: Standing, backoff_s: float, now_s: float) -> Standing:
    return replace(standing, ejected_until_s=now_s + backoff_s, backoff_s=backoff_s, probing=False)
