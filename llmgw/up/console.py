"""What `up` says: plain lines on standard output, as things happen."""

from __future__ import annotations

import contextlib
import sys

_LABEL_WIDTH = 15


class Console:
    """Standard output. A reader that has gone away is no reason to stop a system."""

    def step(self, label: str, text: str) -> None:
        """One line of progress."""
        self.write(f"  {label:<{_LABEL_WIDTH}} {text}\n")

    def say(self, text: str) -> None:
        """One line."""
        self.write(text + "\n")

    def write(self, text: str) -> None:
        """Text as it is, shown at once."""
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(text)
            sys.stdout.flush()
