"""The connections to one engine: idle ones are used again, as many as needed are opened.

There is no upper bound on connections: a stream must never queue behind a pool; the engine's own
queue is the place to wait. Idle ones are few and short-lived: they are closed after
`IDLE_AGE_MAX_S`, well before an engine would (llama.cpp's and uvicorn's keep-alive end after 5 s),
so that a request hardly ever meets a connection that is being closed. Once retired, the pool
closes what is idle at once and everything else after its exchange: agents drain an engine by
counting its connections.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from llmgw.router.connection import Connection
from llmgw.router.core.retry import Failure
from llmgw.router.errors import UpstreamError

if TYPE_CHECKING:
    from ha.clock import Clock

IDLE_AGE_MAX_S = 3.0
REAP_INTERVAL_MIN_S = 0.05
IDLE_MAX = 256


class Pool:
    """Connections to one address."""

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        self._host = host
        self._port = port
        self._clock = clock
        self._idle: list[Connection] = []
        self._reaper: asyncio.TimerHandle | None = None
        self._retired = False

    @property
    def idle(self) -> int:
        """How many connections are open and unused."""
        return len(self._idle)

    def take_idle(self) -> Connection | None:
        """The connection that was used last and is still open, if there is one."""
        oldest_s = self._clock.now_s() - IDLE_AGE_MAX_S
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since_s > oldest_s and connection.usable():
                return connection
            connection.close()
        return None

    async def connect(self, timeout_s: float) -> Connection:
        """A new connection.

        Raises:
            UpstreamError: NOT_CONNECTED; nothing was sent.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._clock, self._forget), self._host, self._port
                )
        except TimeoutError as error:
            message = f"no connection within {timeout_s:g} s"
            raise UpstreamError(Failure.NOT_CONNECTED, message) from error
        except OSError as error:
            message = error.strerror or str(error) or type(error).__name__
            raise UpstreamError(Failure.NOT_CONNECTED, f"no connection: {message}") from error
        return connection

    def give_back(self, connection: Connection) -> None:
        """An exchange ended, one way or another: keep the connection or close it."""
        if not connection.finish():
            return
        if self._retired or len(self._idle) >= IDLE_MAX:
            connection.close()
            return
        connection.idle_since_s = self._clock.now_s()
        self._idle.append(connection)
        if self._reaper is None:
            self._arm()

    def retire(self) -> None:
        """Close what is idle now, and everything else when its exchange ends."""
        self._retired = True
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _forget(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def _arm(self) -> None:
        """Reap when the oldest is due; the loop's timers may fire a moment before our clock."""
        due_s = self._idle[0].idle_since_s + IDLE_AGE_MAX_S - self._clock.now_s()
        delay_s = max(due_s, REAP_INTERVAL_MIN_S)
        self._reaper = asyncio.get_running_loop().call_later(delay_s, self._reap)

    def _reap(self) -> None:
        oldest_s = self._clock.now_s() - IDLE_AGE_MAX_S
        for connection in [one for one in self._idle if one.idle_since_s <= oldest_s]:
            self._idle.remove(connection)
            connection.close()
        self._reaper = None
        if self._idle:
            self._arm()
