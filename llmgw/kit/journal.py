"""Append-only records of what a process did, written when asked; invariants are checked on them.

One JSON object a line. `boot_s` is CLOCK_BOOTTIME, comparable between processes of one machine.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from ha.clock import BootClock

if TYPE_CHECKING:
    from pathlib import Path


class Journal:
    """One process's records. Without a path nothing is written."""

    def __init__(self, path: Path | None, **identity: str) -> None:
        self._identity = identity
        self._clock = BootClock()
        self._file: int | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, event: str, **facts: object) -> None:
        """Record one event; the line is in the file when this returns."""
        if self._file is None:
            return
        record = {"boot_s": self._clock.now_s(), "event": event, **self._identity, **facts}
        os.write(self._file, json.dumps(record).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
