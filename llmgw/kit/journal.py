"""Append-only records of what a process did, written when asked; invariants are checked on them.

One JSON object a line. `boot_s` is CLOCK_BOOTTIME, comparable between processes of one machine.
A disk that takes no more costs records and one line in the log, never the process.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from ha.clock import BootClock
from llmgw.kit.logs import get_logger

if TYPE_CHECKING:
    from pathlib import Path

_log = get_logger(__name__)


class Journal:
    """One process's records. Without a path nothing is written."""

    def __init__(self, path: Path | None, **identity: str) -> None:
        self._identity = identity
        self._clock = BootClock()
        self._file: int | None = None
        self._failing = False
        self._torn = False
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, event: str, **facts: object) -> None:
        """Record one event; the line is in the file when this returns."""
        if self._file is None:
            return
        record = {"boot_s": self._clock.now_s(), "event": event, **self._identity, **facts}
        line = (b"\n" if self._torn else b"") + json.dumps(record).encode() + b"\n"
        try:
            written = os.write(self._file, line)
        except OSError as error:
            if not self._failing:
                _log.error("journal not written, records are lost", reason=str(error))
            self._failing = True
        else:
            self._torn, self._failing = written < len(line), False

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
