"""How long to wait after a failure: per model, spec and node, doubling, then another node."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_S = 1.0
LONGEST_S = 300.0
FAILURES_PER_NODE_MAX = 3
"""After so many failures on one node another one is tried first."""
STABLE_AFTER_S = 300.0
"""A shard that was ready for so long starts counting anew when it fails."""
FORGET_AFTER_S = 900.0
"""Longer than the longest wait, so that a loop of failures never looks like a first one."""

FailureKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of one (model, spec hash, node) in a row, and when to try again."""

    count: int
    reason: str
    retry_at_s: float


def after_failure(
    known: Failures | None, *, reason: str, ready_for_s: float, now_s: float
) -> Failures:
    """The record after one more failure."""
    count = 1 if known is None or ready_for_s >= STABLE_AFTER_S else known.count + 1
    wait_s = min(LONGEST_S, FIRST_S * 2.0 ** min(count - 1, 30))
    return Failures(count, reason, now_s + wait_s)


def is_forgotten(failures: Failures, now_s: float) -> bool:
    """Whether a failure is so old that it no longer counts."""
    return now_s - failures.retry_at_s >= FORGET_AFTER_S
