"""Speaks to the admin API of whichever control plane answers.

A call goes through the given addresses in order until one answers, and follows a refusal that
names the leader. While no control plane leads it asks again for a bounded time, as an election
takes a second. A write that was sent and not answered is never sent again: it may have happened.
"""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from ha.clock import BootClock
from llmgw.ctl.errors import (
    ConflictError,
    CtlError,
    NotFoundError,
    RefusedError,
    UnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ha.clock import Clock

ADMIN_DEFAULT = "http://127.0.0.1:8081"
HOPS_MAX = 4
_OK = 200
_NOT_FOUND = 404
_CONFLICT = 409
_NOT_LEADER = 421
_INVALID = (400, 413, 415, 422)
_UNAVAILABLE = (502, 503, 504)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a call may take, in seconds."""

    connect_s: float = 2.0
    read_answer_s: float = 10.0
    write_answer_s: float = 20.0
    leader_wait_s: float = 15.0
    pause_s: float = 0.5


DEFAULT_LIMITS = Limits()


class InvalidCatalogError(CtlError):
    """A control plane refused a catalog; each problem is a path and a reason."""

    exit_code = 2

    def __init__(self, message: str, problems: Sequence[tuple[tuple[str | int, ...], str]]) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: Any
    base: str

    @property
    def error(self) -> dict[str, Any]:
        error = self.body.get("error") if isinstance(self.body, dict) else None
        return error if isinstance(error, dict) else {}


class _NotAnsweredError(Exception):
    """One address gave no answer; `sent`: the request may have arrived."""

    def __init__(self, reason: str, *, method: str, sent: bool) -> None:
        super().__init__(reason)
        self.method = method
        self.sent = sent


class AdminClient:
    """Calls the admin API; `base` is the address that gave the last answer."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._addresses = tuple(address_of(text) for text in addresses)
        self._limits = limits
        self._clock = clock or BootClock()
        self._sleep = sleep
        self.base = ""

    def get(self, path: str) -> Any:
        """Read something.

        Raises:
            CtlError: the kind says why.
        """
        return self._call("GET", path, None)

    def post(self, path: str, body: object) -> Any:
        """Ask the leader to do something.

        Raises:
            CtlError: the kind says why.
        """
        return self._call("POST", path, body)

    def _call(self, method: str, path: str, body: object) -> Any:
        deadline_s = self._clock.now_s() + self._limits.leader_wait_s
        while True:
            answer = self._try_each(method, path, body)
            if answer.status == _OK:
                self.base = answer.base
                return answer.body
            waiting = answer.status == _NOT_LEADER or answer.status in _UNAVAILABLE
            if not waiting or self._clock.now_s() >= deadline_s:
                raise _error_of(answer)
            self._sleep(self._limits.pause_s)

    def _try_each(self, method: str, path: str, body: object) -> _Answer:
        """The first useful answer; a refusal for want of a leader only if there is no better."""
        refusal: _Answer | None = None
        failures: list[str] = []
        queue = list(self._addresses)
        asked: set[str] = set()
        hops = 0
        while queue:
            base = queue.pop(0)
            if base in asked:
                continue
            asked.add(base)
            try:
                if method == "POST":
                    # One that hangs takes a request and never answers: then nobody knows whether
                    # it was done. So it must show that it answers before it gets a write.
                    self._request(base, "GET", "/healthz", None, answer_s=self._limits.connect_s)
                answer = self._request(base, method, path, body)
            except _NotAnsweredError as error:
                if error.sent and error.method == "POST":
                    raise UnreachableError(
                        f"{base} took the request but did not answer ({error}): it may have been "
                        "done; look before you repeat it"
                    ) from error
                failures.append(f"{base}: {error}")
                continue
            if not _of_admin_api(answer):
                failures.append(f"{base} does not speak the admin API of llmgw")
                continue
            if answer.status not in (_NOT_LEADER, *_UNAVAILABLE):
                return answer
            # That somebody else leads says less than what the one that does has to say.
            if refusal is None or refusal.status == _NOT_LEADER:
                refusal = answer
            leader = _leader_address(answer)
            if leader and leader not in asked and hops < HOPS_MAX:
                hops += 1
                queue.insert(0, leader)
        if refusal is not None:
            return refusal
        raise UnreachableError("no control plane answers: " + "; ".join(failures))

    def _request(
        self, base: str, method: str, path: str, body: object, *, answer_s: float = 0
    ) -> _Answer:
        if not answer_s:
            reads = method == "GET"
            answer_s = self._limits.read_answer_s if reads else self._limits.write_answer_s
        parts = urlsplit(base)
        connection = _connection(parts, self._limits.connect_s)
        sent = False
        try:
            connection.connect()
            if connection.sock is not None:
                connection.sock.settimeout(answer_s)
            sent = True
            payload = None if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json"} if payload is not None else {}
            connection.request(method, parts.path.rstrip("/") + path, payload, headers)
            response = connection.getresponse()
            content = response.read()
        except TimeoutError as error:
            raise _NotAnsweredError("no answer in time", method=method, sent=sent) from error
        except http.client.BadStatusLine as error:
            # Closed without an answer is another thing than an answer that is not HTTP.
            closed = isinstance(error, http.client.RemoteDisconnected)
            reason = str(error).lower() if closed else "it does not speak HTTP"
            raise _NotAnsweredError(reason, method=method, sent=sent) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise _NotAnsweredError(reason.lower(), method=method, sent=sent) from error
        finally:
            connection.close()
        return _Answer(response.status, _parse(base, response.status, content), base)


def address_of(text: str) -> str:
    """An admin address as a URL without a slash at the end; `host:port` is taken as http.

    Raises:
        RefusedError: it is not an address.
    """
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise RefusedError(f"--admin {text}: expected http://HOST:PORT")
    return url.rstrip("/")


def _connection(parts: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=timeout_s)


def _parse(base: str, status: int, content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        if status == _OK:
            raise CtlError(f"{base} does not speak the admin API of llmgw") from error
        return None


def _of_admin_api(answer: _Answer) -> bool:
    """Whether a control plane can have said so: none answers 404 but for models it names."""
    return answer.status != _NOT_FOUND or "names" in answer.error


def _leader_address(answer: _Answer) -> str | None:
    leader = answer.error.get("leader")
    address = leader.get("admin_address") if isinstance(leader, dict) else None
    if not isinstance(address, str) or not address:
        return None
    return address_of(address)


def _error_of(answer: _Answer) -> CtlError:
    message = str(answer.error.get("message") or f"{answer.base} answered HTTP {answer.status}")
    if answer.status == _CONFLICT:
        return ConflictError(message)
    if answer.status == _NOT_FOUND and answer.error:
        return NotFoundError(message)
    if answer.status in _INVALID:
        problems = answer.error.get("problems")
        if isinstance(problems, list) and problems:
            pairs = [(tuple(item["path"]), str(item["reason"])) for item in problems]
            return InvalidCatalogError(message, pairs)
        return RefusedError(message)
    if answer.status == _NOT_LEADER:
        return UnreachableError(f"no control plane leads at the moment: {message}")
    return UnreachableError(message)
