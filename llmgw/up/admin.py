"""What `up` asks the control planes while it waits: any that answers will do."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMEOUT = aiohttp.ClientTimeout(total=3)


class Admin:
    """Reads of the admin API."""

    def __init__(self, session: aiohttp.ClientSession, addresses: Sequence[str]) -> None:
        self._session = session
        self._addresses = tuple(addresses)

    async def status(self) -> dict[str, Any] | None:
        """The status as a control plane sees it that knows the leader's view; None without one."""
        return await self._first("/v1/status", lambda status: status.get("agents") is not None)

    async def catalog(self) -> dict[str, Any] | None:
        """The catalog in force; None if nobody answers."""
        return await self._first("/v1/catalog", lambda _: True)

    async def _first(self, path: str, useful: Any) -> dict[str, Any] | None:
        for address in self._addresses:
            try:
                async with self._session.get(address + path, timeout=_TIMEOUT) as answer:
                    if answer.status != HTTPStatus.OK:
                        continue
                    body: dict[str, Any] = await answer.json()
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                continue
            if useful(body):
                return body
        return None
