"""Calls to whichever endpoint answers, each within one deadline.

A member that refuses is left at once, one that hangs after its share of the time: half of what is
left while there are others to try. Repeatable calls go on until the deadline. A call that is not
repeatable is sent once: it moves on only while it has provably not been sent, or when etcd says
that it looked no further. An unknown outcome raises `UnavailableError(maybe_applied=True)`.

With a user, each call carries a token, which is renewed when etcd does not know it any more.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import grpc.aio

from ha.etcd import wire_pb2 as wire
from ha.etcd.channels import AUTHENTICATE, Endpoint, being_cancelled
from ha.etcd.errors import Verdict, judge, refusal
from ha.store import RejectedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ha.etcd.channels import EtcdTls, Method

ROUND_PAUSE_S = 0.03
TOKENS_PER_CALL_MAX = 2

Metadata = tuple[tuple[str, str], ...]
_HAS_LEADER: Metadata = (("hasleader", "true"),)


class BrokenStreamError(Exception):
    """A stream ended where an answer was due."""


class Calls:
    """The endpoints of one cluster; `endpoints[0]` is the one in use."""

    def __init__(
        self, addresses: Sequence[str], tls: EtcdTls | None, user: str, password: str
    ) -> None:
        self.endpoints = [Endpoint(address, tls) for address in addresses]
        random.shuffle(self.endpoints)
        self.user = user
        self._password = password
        self._token = ""
        self._authenticating = asyncio.Lock()

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.gather(*(endpoint.close() for endpoint in self.endpoints))

    def leave(self, endpoint: Endpoint) -> None:
        """Prefer the next endpoint from now on."""
        if self.endpoints[0] is endpoint:
            self.endpoints.append(self.endpoints.pop(0))

    async def unary(self, method: Method, request: Any, *, timeout_s: float) -> Any:
        """Call a unary method.

        Raises:
            UnavailableError, RejectedError, CompactedError, LeaseNotFoundError.
        """

        async def attempt(endpoint: Endpoint, metadata: Metadata, attempt_s: float) -> Any:
            return await endpoint.unary(method)(request, metadata=metadata, timeout=attempt_s)

        return await self.run(
            method.name, attempt, timeout_s=timeout_s, repeatable=method.repeatable
        )

    async def run(
        self,
        name: str,
        attempt: Callable[[Endpoint, Metadata, float], Awaitable[Any]],
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> Any:
        """Make attempts until one succeeds, with a valid token if there is a user."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        for _ in range(TOKENS_PER_CALL_MAX):
            metadata = await self.metadata(deadline_s)
            try:
                return await self._attempts(name, attempt, metadata, deadline_s, repeatable)
            except grpc.aio.AioRpcError as error:
                details = error.details() or ""
                if judge(error.code(), details) is not Verdict.NEW_TOKEN or not self.user:
                    raise refusal(name, error.code(), details) from error
                self.forget_token(metadata)
        raise RejectedError(f"{name}: etcd refuses the token it has just given to {self.user!r}")

    async def metadata(self, deadline_s: float) -> Metadata:
        """What every call carries: the demand for a member with a leader, and the token."""
        if not self.user:
            return _HAS_LEADER
        try:
            async with asyncio.timeout_at(deadline_s), self._authenticating:
                if not self._token:
                    self._token = await self._authenticate(deadline_s)
        except TimeoutError:
            raise UnavailableError("Authenticate: no answer in time") from None
        return (*_HAS_LEADER, ("token", self._token))

    def forget_token(self, metadata: Metadata) -> None:
        """The token in `metadata` is not valid any more: drop it, unless another has come."""
        if ("token", self._token) in metadata:
            self._token = ""

    async def _authenticate(self, deadline_s: float) -> str:
        request = wire.AuthenticateRequest(name=self.user, password=self._password)

        async def attempt(endpoint: Endpoint, metadata: Metadata, attempt_s: float) -> Any:
            call = endpoint.unary(AUTHENTICATE)
            return await call(request, metadata=metadata, timeout=attempt_s)

        try:
            response = await self._attempts(
                AUTHENTICATE.name, attempt, _HAS_LEADER, deadline_s, repeatable=True
            )
        except grpc.aio.AioRpcError as error:
            raise refusal(AUTHENTICATE.name, error.code(), error.details() or "") from error
        return str(response.token)

    async def _attempts(
        self,
        name: str,
        attempt: Callable[[Endpoint, Metadata, float], Awaitable[Any]],
        metadata: Metadata,
        deadline_s: float,
        repeatable: bool,
    ) -> Any:
        """Attempts with one token; an AioRpcError that leaves here is not about a member."""
        loop = asyncio.get_running_loop()
        untried, trouble = len(self.endpoints), "no time"
        while (left_s := deadline_s - loop.time()) > 0:
            endpoint = self.endpoints[0]
            untried -= 1
            share_s = left_s / 2 if untried > 0 else left_s
            share_ends_s = loop.time() + share_s
            if not await endpoint.ready(share_s):
                trouble = f"{endpoint.address}: no connection"
            else:
                ends_s = share_ends_s if repeatable else deadline_s
                try:
                    return await attempt(endpoint, metadata, max(0.001, ends_s - loop.time()))
                except BrokenStreamError:
                    trouble, unapplied = f"{endpoint.address}: the stream broke", False
                except asyncio.CancelledError:
                    if being_cancelled():
                        raise
                    trouble, unapplied = f"{endpoint.address}: closed", False
                except grpc.aio.AioRpcError as error:
                    details = error.details() or ""
                    verdict = judge(error.code(), details)
                    if verdict in (Verdict.NEW_TOKEN, Verdict.REFUSED):
                        raise
                    trouble = f"{endpoint.address}: {error.code().name}: {details}"
                    unapplied = verdict is Verdict.ELSEWHERE_UNAPPLIED
                if not (repeatable or unapplied):
                    self.leave(endpoint)
                    raise UnavailableError(f"{name}: {trouble}", maybe_applied=True)
            self.leave(endpoint)
            if untried <= 0:
                untried = len(self.endpoints)
                await asyncio.sleep(min(ROUND_PAUSE_S, max(0.0, deadline_s - loop.time())))
        raise UnavailableError(f"{name}: no answer in time; last: {trouble}")
