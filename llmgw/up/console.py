"""What `up` says: plain lines on standard output, as things happen."""

from __future__ import annotations

import contextlib
import shlex
import shutil
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


def own_command(started_as: str) -> str:
    """How the reader's shell finds this program: it need not be on PATH.

    Args:
        started_as: the first word of this program's command line.
    """
    if shutil.which("llmgw"):
        return "llmgw"
    if started_as.endswith(".py"):
        return f"{shlex.quote(sys.executable)} -m llmgw"
    return shlex.quote(started_as)
