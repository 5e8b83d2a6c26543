"""What etcd's errors mean for a call: go elsewhere, is it certain that nothing was applied, no."""

from __future__ import annotations

import grpc
import pytest

from ha.etcd.errors import TooLargeError, Verdict, judge, refusal
from ha.store import CompactedError, LeaseNotFoundError, RejectedError

CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "details", "verdict"),
    [
        (CODE.UNAVAILABLE, "Connection reset by peer", Verdict.ELSEWHERE),
        (CODE.DEADLINE_EXCEEDED, "Deadline Exceeded", Verdict.ELSEWHERE),
        (CODE.UNKNOWN, "context deadline exceeded", Verdict.ELSEWHERE),
        (CODE.UNAVAILABLE, "etcdserver: request timed out", Verdict.ELSEWHERE),
        (CODE.UNAVAILABLE, "etcdserver: no leader", Verdict.ELSEWHERE_UNAPPLIED),
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: too many requests", Verdict.ELSEWHERE_UNAPPLIED),
        (CODE.UNAUTHENTICATED, "etcdserver: invalid auth token", Verdict.NEW_TOKEN),
        (
            CODE.INVALID_ARGUMENT,
            "etcdserver: revision of auth store is old",
            Verdict.NEW_TOKEN,
        ),
        (CODE.PERMISSION_DENIED, "etcdserver: permission denied", Verdict.REFUSED),
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", Verdict.REFUSED),
    ],
)
def test_verdicts(code: grpc.StatusCode, details: str, verdict: Verdict) -> None:
    assert judge(code, details) is verdict


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (
            CODE.OUT_OF_RANGE,
            "etcdserver: mvcc: required revision has been compacted",
            CompactedError,
        ),
        (CODE.NOT_FOUND, "etcdserver: requested lease not found", LeaseNotFoundError),
        (
            CODE.RESOURCE_EXHAUSTED,
            "CLIENT: Received message larger than max (9 vs. 4)",
            TooLargeError,
        ),
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", RejectedError),
        (CODE.PERMISSION_DENIED, "etcdserver: permission denied", RejectedError),
    ],
)
def test_refusals(code: grpc.StatusCode, details: str, kind: type[Exception]) -> None:
    assert type(refusal("Txn", code, details)) is kind
