"""What can go wrong in an operator's command, and the exit code each kind of failure has.

Scripts rely on the codes: 0 done, 1 failed (nobody answered, no leader), 2 bad input or refused,
3 the catalog changed meanwhile, 4 no such thing.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, ClassVar, ParamSpec

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")


class CtlError(Exception):
    """A command failed; the message is for the operator."""

    exit_code: ClassVar[int] = 1

    def lines(self) -> tuple[str, ...]:
        """What to print on standard error."""
        return (f"error: {self}",)


class UnreachableError(CtlError):
    """No control plane answered, or none leads."""


class RefusedError(CtlError):
    """The input is wrong; `problems` lists every fault, ready to print."""

    exit_code = 2

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems

    def lines(self) -> tuple[str, ...]:
        """The problems first, one a line, so that the summary stands last."""
        return (*self.problems, f"error: {self}")


class ConflictError(CtlError):
    """The catalog changed since it was read."""

    exit_code = 3


class NotFoundError(CtlError):
    """What was named does not exist."""

    exit_code = 4


def operator_command(function: Callable[P, None]) -> Callable[P, None]:
    """Make a command print its `CtlError` as one line and exit with the error's code."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except CtlError as error:
            for line in error.lines():
                print(line, file=sys.stderr)  # noqa: T201 - a command line tool prints
            raise typer.Exit(error.exit_code) from error

    return guarded
