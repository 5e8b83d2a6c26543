"""Steps of a plan, each with a reason, and what a step changes in the leader's own picture.

A step is applied after its command was queued, never before: what could not be sent was not
done, and the next pass plans it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from llmgw.control.core.values import Intent, Shard
from llmgw.domain.shard import ShardState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmgw.control.core.fleet import Fleet
    from llmgw.control.core.values import ShardKey
    from llmgw.domain.shard import ShardSpec


@dataclass(frozen=True, slots=True)
class Start:
    """Start a shard on a node."""

    node_id: str
    spec: ShardSpec
    reason: str


@dataclass(frozen=True, slots=True)
class Retire:
    """Withdraw a replica's endpoint; draining comes after."""

    key: ShardKey
    reason: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Let a shard that is no longer routed finish, then stop."""

    key: ShardKey
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a shard that serves nobody, or clean up after one that failed."""

    key: ShardKey
    reason: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop the memory of a failed shard that its node has cleaned up."""

    key: ShardKey
    reason: str


Step: TypeAlias = Start | Retire | Drain | Stop | Forget


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and for each model why it has fewer replicas than wanted (or "")."""

    steps: tuple[Step, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)


def started(step: Start, registration: int, message_id: str, now_s: float) -> Shard:
    """The shard that a start creates, commanded and not yet reported."""
    return Shard(
        step.node_id, step.spec, ShardState.PENDING, now_s, registration, message_id=message_id
    )


def apply_step(fleet: Fleet, step: Step, message_id: str, now_s: float) -> None:
    """Record that a step was taken."""
    if isinstance(step, Start):
        node = fleet.nodes[step.node_id]
        fleet.command(started(step, node.registration, message_id, now_s))
        return
    if isinstance(step, Forget):
        fleet.forget(step.key)
        return
    shard = fleet.shards.get(step.key)
    if shard is None:
        return
    intents = {Retire: Intent.RETIRE, Drain: Intent.DRAIN, Stop: Intent.STOP}
    fleet.update_shard(
        replace(
            shard,
            intent=intents[type(step)],
            intent_reason=step.reason,
            intent_at_s=now_s,
            message_id=message_id or shard.message_id,
        )
    )
