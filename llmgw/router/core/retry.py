"""Decides whether a failed attempt may be made again, and whether it speaks against the endpoint.

Only what cannot have run is sent again, once, elsewhere: no connection came about, or the engine
said 503 before anything else. Never after a byte went to the client.

A request written to a connection that then closes without an answer is *not* sent again, also
when the connection came from the pool and the engine may just have been tired of waiting: the
router cannot tell that from an engine that read the request, began to generate and died. The
pool makes this rare instead (`llmgw.router.pool`).
"""

from __future__ import annotations

from enum import StrEnum

from llmgw.router.core.ejection import Verdict

ATTEMPTS_MAX = 2
_STATUS_SERVER_ERROR = 500


class Failure(StrEnum):
    """Why an attempt failed."""

    NOT_CONNECTED = "not_connected"  # refused, unreachable, or no connection in time
    UNAVAILABLE = "unavailable"  # the engine answered 503
    CLOSED = "closed"  # the connection ended before the answer did
    MALFORMED = "malformed"  # what came back is no HTTP answer to this request
    FIRST_BYTE_LATE = "first_byte_late"
    SILENT = "silent"  # bytes stopped coming in the middle


_CANNOT_HAVE_RUN = frozenset({Failure.NOT_CONNECTED, Failure.UNAVAILABLE})


def may_retry(failure: Failure, *, attempts: int, answer_begun: bool) -> bool:
    """Whether another endpoint may be asked.

    Args:
        failure: how the last attempt ended.
        attempts: how many have been made.
        answer_begun: whether any byte went to the client.
    """
    return failure in _CANNOT_HAVE_RUN and attempts < ATTEMPTS_MAX and not answer_begun


def verdict_on_status(status: int) -> Verdict:
    """What an engine's status says about it: a 4xx is the client's doing."""
    return Verdict.FAILURE if status >= _STATUS_SERVER_ERROR else Verdict.SUCCESS
