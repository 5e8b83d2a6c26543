"""Which commands an agent takes, and what each means for what it already holds.

Guarantees: nothing of a term below the highest accepted one is taken, and the refusal names that
term; a command that arrives twice does its work once, by replica and shard id. Does not persist
terms (`llmgw.agent.terms`) and does not act (`llmgw.agent.supervisor`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from llmgw.domain.messages import DrainShard, StartShard, StopShard
from llmgw.domain.shard import ShardState

if TYPE_CHECKING:
    from collections.abc import Mapping

ShardCommand: TypeAlias = "StartShard | StopShard | DrainShard"


class Action(StrEnum):
    """What the supervisor has to do about a command."""

    START = "start"
    STOP = "stop"
    DRAIN = "drain"
    NOTHING = "nothing"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one command, with a reason for an operator."""

    action: Action
    reason: str

    @property
    def accepted(self) -> bool:
        """Whether the command counts as taken (also when there is nothing left to do)."""
        return self.action is not Action.REFUSE


@dataclass(frozen=True, slots=True)
class Held:
    """What the agent holds under one shard id."""

    replica_id: str
    state: ShardState


def stale_reason(term: int, highest_term: int) -> str | None:
    """Why a message of `term` is refused for its age; None when it is not."""
    if term >= highest_term:
        return None
    return f"term {term} is below {highest_term}, the highest this agent has accepted"


def decide(command: ShardCommand, held: Mapping[str, Held]) -> Decision:
    """What a command of an accepted term means, given the shards held (by shard id)."""
    shard_id = command.spec.shard_id if isinstance(command, StartShard) else command.shard_id
    replica_id = command.spec.replica_id if isinstance(command, StartShard) else command.replica_id
    present = held.get(shard_id)
    if present is not None and present.replica_id != replica_id:
        reason = f"shard {shard_id} belongs to replica {present.replica_id}, not {replica_id}"
        return Decision(Action.REFUSE, reason)
    if isinstance(command, StartShard):
        return _start(shard_id, present)
    return _end(command, present)


def _start(shard_id: str, present: Held | None) -> Decision:
    if present is None or present.state is ShardState.STOPPED:
        return Decision(Action.START, "new here")
    if present.state is ShardState.FAILED:
        return Decision(Action.START, "failed before; starting anew")
    if present.state is ShardState.DRAINING:
        # Starting it again would need its port before the old process has left it. The leader
        # repeats what it still wants once it has heard that the shard stopped.
        return Decision(Action.REFUSE, f"shard {shard_id} is being stopped")
    return Decision(Action.NOTHING, f"already {present.state}")


def _end(command: StopShard | DrainShard, present: Held | None) -> Decision:
    if present is None or present.state is ShardState.STOPPED:
        return Decision(Action.NOTHING, f"no shard {command.shard_id} here")
    if isinstance(command, DrainShard):
        if present.state is ShardState.DRAINING:
            return Decision(Action.NOTHING, "already draining")
        if present.state is ShardState.READY:
            return Decision(Action.DRAIN, command.reason)
    # What never became ready has no requests to finish, and a stop cuts a drain short.
    return Decision(Action.STOP, command.reason)
