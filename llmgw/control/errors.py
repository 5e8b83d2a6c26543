"""What can go wrong in a control plane, one tree."""

from __future__ import annotations


class ControlError(Exception):
    """Base of all errors of this package."""


class CommandError(ControlError):
    """A command could not be queued for a node; the message says why."""


class ConflictError(ControlError):
    """The catalog is not at the revision that the caller read. `revision` is where it is."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        super().__init__(f"the catalog has changed meanwhile: it is at revision {revision}")


class StartUpError(ControlError):
    """A leader cannot start its term; it resigns."""
