"""What a leader holds of nodes and shards: immutable values, folded by `fleet`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from llmgw.domain.shard import ShardState

if TYPE_CHECKING:
    from llmgw.domain.messages import FetchProgress
    from llmgw.domain.node import NodeFacts, NodeLoad
    from llmgw.domain.shard import Quarantined, ShardReport, ShardSpec

ShardKey = tuple[str, str]
"""Node and shard id: two nodes may claim the same shard."""


class NodeState(StrEnum):
    """How the leader sees a node. Unknown: on the roster, not heard from under this leader."""

    UNKNOWN = "unknown"
    REGISTERING = "registering"
    READY = "ready"
    SUSPECT = "suspect"
    LOST = "lost"


class Intent(StrEnum):
    """What the leader means to do with a shard, in the order it goes through them."""

    RUN = "run"
    RETIRE = "retire"
    """Its endpoint is to be withdrawn; nothing was sent yet."""
    DRAIN = "drain"
    """DrainShard was queued."""
    STOP = "stop"
    """StopShard was queued."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `timer_from_s` is when its silence began to count under the present leader."""

    node_id: str
    timer_from_s: float
    state: NodeState = NodeState.UNKNOWN
    facts: NodeFacts | None = None
    load: NodeLoad | None = None
    connected: bool = False
    registered: bool = False
    """Its inventory was taken under the present leader."""
    open: bool = False
    """Its shards are adopted, so that something may be placed on it."""
    registration: int = 0
    heard_at_s: float | None = None
    quarantined: tuple[Quarantined, ...] = ()


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard on one node; without a report it was commanded and is not yet reported."""

    node_id: str
    spec: ShardSpec
    state: ShardState
    since_s: float
    registration: int
    report: ShardReport | None = None
    reason: str = ""
    ready_since_s: float | None = None
    intent: Intent = Intent.RUN
    intent_reason: str = ""
    intent_at_s: float = 0.0
    message_id: str = ""
    cleaned: bool = False
    """It failed, and its node confirmed that nothing is left of it."""
    fetch: FetchProgress | None = None

    @property
    def key(self) -> ShardKey:
        """What names this claim."""
        return (self.node_id, self.spec.shard_id)

    @property
    def is_wanted(self) -> bool:
        """Alive and meant to stay so."""
        return (
            self.intent is Intent.RUN
            and not self.state.is_over
            and self.state is not ShardState.DRAINING
        )
