"""What can go wrong in the router, and how a client is told: errors in the form of OpenAI's API.

`RequestError` is an answer to a client. `UpstreamError` is a failed attempt at an engine, which
may be made again elsewhere or becomes an answer (`upstream_answer`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from llmgw.router.core.retry import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN_LENGTH_MAX = 200
RETRY_AFTER_S = 5
RETRY_AFTER = ((b"retry-after", b"%d" % RETRY_AFTER_S),)
CLIENT_CLOSED_REQUEST = 499


class RouterError(Exception):
    """Anything that goes wrong in the router."""


class RequestError(RouterError):
    """A request that is answered with an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        kind: str = "invalid_request_error",
        param: str | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = tuple(headers)
        self.body = error_body(message, kind=kind, param=param, code=code)


class UpstreamError(RouterError):
    """An attempt at an engine failed."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


class ClientLeftError(RouterError):
    """The client closed its connection; there is nobody to answer."""


class SnapshotError(RouterError):
    """The copy of the route table on disk cannot be used."""


def error_body(message: str, *, kind: str, param: str | None, code: str | None) -> bytes:
    """The JSON of an error."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return json.dumps({"error": error}).encode()


def shown(name: str) -> str:
    """A name from a client, quoted and no longer than a person wants to read."""
    return repr(name if len(name) <= _SHOWN_LENGTH_MAX else name[:_SHOWN_LENGTH_MAX] + "...")


def model_not_found(name: str) -> RequestError:
    """No model has this name or alias."""
    message = f"The model {shown(name)} does not exist."
    return RequestError(404, message, code="model_not_found", param="model")


def not_running(model: str) -> RequestError:
    """The model is in the catalog, but nothing serves it now."""
    return RequestError(
        503,
        f"The model {shown(model)} is known, but no replica of it is ready. Try again later.",
        kind="service_unavailable",
        code="model_not_ready",
        headers=RETRY_AFTER,
    )


def no_table() -> RequestError:
    """The router has just started and was never able to read etcd, nor a copy on disk."""
    return RequestError(
        503,
        "The router has no route table yet: etcd was not reachable so far.",
        kind="service_unavailable",
        code="not_ready",
        headers=RETRY_AFTER,
    )


def shutting_down() -> RequestError:
    """The router stops, and the request did not end in time."""
    return RequestError(
        503,
        "The router is shutting down.",
        kind="service_unavailable",
        code="shutting_down",
        headers=RETRY_AFTER,
    )


def too_large(body_bytes_max: int) -> RequestError:
    """The request's body is above the limit."""
    message = f"The body is larger than the limit of {body_bytes_max} bytes."
    return RequestError(413, message, code="request_too_large")


def upstream_answer(error: UpstreamError) -> RequestError:
    """How a client learns of an attempt that failed for good."""
    if error.failure is Failure.UNAVAILABLE:
        return RequestError(
            503,
            f"The engine is not available: {error}",
            kind="service_unavailable",
            code="engine_unavailable",
            headers=RETRY_AFTER,
        )
    late = error.failure in {Failure.FIRST_BYTE_LATE, Failure.SILENT}
    return RequestError(
        504 if late else 502,
        f"The engine failed: {error}",
        kind="upstream_error",
        code="upstream_timeout" if late else "upstream_error",
    )
