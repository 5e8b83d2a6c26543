"""What can go wrong while everything is brought up on one machine."""

from __future__ import annotations


class UpError(Exception):
    """`up` cannot go on; the message is for the operator. Exit code 1 unless said otherwise."""

    exit_code = 1


class InputError(UpError):
    """What was asked for cannot be done as it is asked."""

    exit_code = 2


class PartFailedError(UpError):
    """A part ended while the system was coming up."""

    def __init__(self, what: str, exit_code: int, log: str, last_lines: list[str]) -> None:
        said = "".join(f"\n  | {line}" for line in last_lines)
        super().__init__(f"{what} ended with exit code {exit_code}; its log {log} ends with:{said}")
