"""Time for deadlines: one clock that counts suspend and never steps.

CLOCK_BOOTTIME goes on while the machine sleeps; CLOCK_MONOTONIC (and an event loop's own time)
does not, so a leader that measured with it would wake up believing in a lease that is long gone.
The wall clock steps, and decides nothing.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where `ha` and its users get the time from; a simulator brings its own."""

    def now_s(self) -> float:
        """Seconds since some fixed moment, suspend included; never goes back."""
        ...


class BootClock:
    """CLOCK_BOOTTIME of this machine (Linux)."""

    def now_s(self) -> float:
        """Seconds since the machine booted, suspend included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
