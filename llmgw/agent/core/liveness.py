"""Whether the leader at the other end of a stream is alive, by what was heard and when.

A heartbeat counts only when its loop tick moved: a process whose event loop hangs is not alive,
whatever its threads still send. Frozen counts as life. Times are seconds of a clock that counts
suspend; they come in.
"""

from __future__ import annotations

MISSED_HEARTBEATS_MAX = 3
ACK_TIMEOUT_S = 10.0


class LeaderLife:
    """What was last heard on one stream. Before the Ack the patience is `ACK_TIMEOUT_S`."""

    def __init__(self, now_s: float) -> None:
        self._heard_s = now_s
        self._patience_s = ACK_TIMEOUT_S
        self._tick: int | None = None

    def ack(self, now_s: float, heartbeat_interval_s: float) -> None:
        """The leader took the registration and said how often it beats."""
        self._heard_s = now_s
        self._patience_s = MISSED_HEARTBEATS_MAX * heartbeat_interval_s

    def command(self, now_s: float) -> None:
        """Something else than a heartbeat came."""
        self._heard_s = now_s

    def heartbeat(self, now_s: float, loop_tick: int) -> None:
        """A heartbeat came."""
        if loop_tick != self._tick:
            self._tick = loop_tick
            self._heard_s = now_s

    def left_s(self, now_s: float) -> float:
        """Seconds until the leader counts as gone; not positive: it is gone."""
        return self._heard_s + self._patience_s - now_s
