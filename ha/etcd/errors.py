"""What an error from etcd or gRPC means for the call that got it."""

from __future__ import annotations

from enum import Enum, auto

import grpc

from ha.store import CompactedError, LeaseNotFoundError, RejectedError, StoreError

_DOWN = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.CANCELLED,
    }
)
# etcd says these before it looks at the request. Calls carry `hasleader`, so a member cut off from
# the others answers with the first of them at once.
_BEFORE_APPLYING = ("etcdserver: no leader", "etcdserver: too many requests")
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old")


class Verdict(Enum):
    """What to do after an error."""

    ELSEWHERE = auto()  # this member is of no use now; the request may have been applied
    ELSEWHERE_UNAPPLIED = auto()  # the same, but the request was certainly not applied
    NEW_TOKEN = auto()  # the auth token is not valid any more; not applied
    REFUSED = auto()  # the answer is no


class TooLargeError(RejectedError):
    """The answer is larger than the client takes."""


def judge(code: grpc.StatusCode, details: str) -> Verdict:
    """What to do after an error with this code and text."""
    if any(text in details for text in _BEFORE_APPLYING):
        return Verdict.ELSEWHERE_UNAPPLIED
    if code is grpc.StatusCode.UNAUTHENTICATED or any(text in details for text in _STALE_TOKEN):
        return Verdict.NEW_TOKEN
    return Verdict.ELSEWHERE if code in _DOWN else Verdict.REFUSED


def refusal(name: str, code: grpc.StatusCode, details: str) -> StoreError:
    """The exception for an error that was judged a refusal."""
    if code is grpc.StatusCode.OUT_OF_RANGE and "compacted" in details:
        return CompactedError(0)
    if code is grpc.StatusCode.NOT_FOUND and "lease not found" in details:
        return LeaseNotFoundError(details)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return TooLargeError(f"{name}: {details}")
    return RejectedError(f"{name}: {code.name}: {details}")
