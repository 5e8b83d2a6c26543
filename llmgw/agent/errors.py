"""What can go wrong in an agent, as one tree."""

from __future__ import annotations


class AgentError(Exception):
    """Base of every operating error of an agent; the message is for an operator."""


class StateDirError(AgentError):
    """The state directory cannot be used: taken, unreadable or not writable."""


class RecordError(AgentError):
    """One shard's record on disk cannot be read."""


class StartError(AgentError):
    """An engine cannot be started; the message says why."""
