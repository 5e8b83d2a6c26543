"""The end of an engine's output, for the reason of a failure."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LINES_MAX = 200
LINE_CHARACTERS_MAX = 2_000
_BYTES_MAX = 256 * 1024
_CUT = " [...]"


def last_lines(path: Path, lines_max: int = LINES_MAX) -> tuple[str, ...]:
    """The last lines of a file, long ones cut and marked; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _BYTES_MAX))
            content = file.read(_BYTES_MAX)
    except OSError:
        return ()
    lines = content.decode("utf-8", "replace").splitlines()[-lines_max:]
    return tuple(
        line if len(line) <= LINE_CHARACTERS_MAX else line[:LINE_CHARACTERS_MAX] + _CUT
        for line in lines
    )
