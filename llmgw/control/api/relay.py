"""A standby's way to what only the leader knows: it asks the leader's admin listener.

One hop only: a relayed request is never relayed again, so two control planes that each take the
other for the leader answer at once instead of asking in circles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp

from llmgw.kit.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmgw.control.plane import ControlPlane

TIMEOUT_S = 2.0
HOP_HEADER = "X-Llmgw-Relayed-By"

_log = get_logger(__name__)


class Relay:
    """Asks the leader; gives up quietly when there is none to be reached."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._session: aiohttp.ClientSession | None = None

    async def get(self, path: str, headers: Mapping[str, str]) -> dict[str, Any] | None:
        """The leader's answer to `GET path`, or None."""
        leader = self._plane.elector.leader
        if leader is None or leader.id == self._plane.id or HOP_HEADER in headers:
            return None
        address = leader.facts.get("admin_address", "")
        if not address:
            return None
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
            self._session = aiohttp.ClientSession(timeout=timeout)
        try:
            async with self._session.get(
                f"http://{address}{path}", headers={HOP_HEADER: self._plane.id}
            ) as response:
                if response.status != 200:  # noqa: PLR2004 - HTTP OK
                    return None
                answer = await response.json()
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            _log.info("the leader does not answer", leader=leader.id, error=repr(error))
            return None
        return answer if isinstance(answer, dict) else None

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()
