"""What agents and leaders say to each other, as values. The wire form is in `proto/`.

Up: Register, AgentHeartbeat, ShardStatus, CommandResult, LogsReply, each with the highest term
the agent has accepted. Down: Ack, Provision, StartShard, StopShard, DrainShard, RemoveWeights,
LogsRequest, LeaderHeartbeat, each with the leader's term and a message id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from llmgw.domain.node import (
        EngineInstallation,
        Gpu,
        NodeFacts,
        NodeLoad,
        ShardLoad,
        Storage,
        Weights,
    )
    from llmgw.domain.shard import Quarantined, ShardReport, ShardSpec


@dataclass(frozen=True, slots=True)
class Register:
    """The first message of a stream, and later: new facts about the hardware."""

    node_id: str
    facts: NodeFacts
    shards: tuple[ShardReport, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentHeartbeat:
    """Life and news of a node. `None` is silence about a list; an empty tuple is "none"."""

    loop_tick: int
    load: NodeLoad | None = None
    shard_loads: tuple[ShardLoad, ...] = ()
    problems: tuple[str, ...] | None = None
    gpus: tuple[Gpu, ...] | None = None
    storage: tuple[Storage, ...] | None = None
    weights: tuple[Weights, ...] | None = None
    engines: tuple[EngineInstallation, ...] | None = None
    memory_total_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """How far a download is, in bytes. An unknown total is `None`."""

    source: str
    bytes_done: int
    bytes_total: int | None = None


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard's state; fetch progress beside it is news, not a transition."""

    shard: ShardReport
    fetch: FetchProgress | None = None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The answer to a command. `stale_term`: its term was below `highest_term`."""

    message_id: str
    accepted: bool
    reason: str = ""
    stale_term: bool = False
    highest_term: int = 0


@dataclass(frozen=True, slots=True)
class LogsReply:
    """Lines of one source, and every source the node has, in an error too."""

    message_id: str
    source: str
    lines: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    error: str = ""


UpBody: TypeAlias = "Register | AgentHeartbeat | ShardStatus | CommandResult | LogsReply"


@dataclass(frozen=True, slots=True)
class Up:
    """One message from an agent, with the highest term it has accepted."""

    term: int
    body: UpBody


@dataclass(frozen=True, slots=True)
class Ack:
    """The registration was taken; the agent sends heartbeats this often (seconds)."""

    heartbeat_interval_s: float


@dataclass(frozen=True, slots=True)
class WantedEngine:
    """An engine version that every node should have."""

    engine: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Provision:
    """All engine versions every node should have, sorted."""

    engines: tuple[WantedEngine, ...] = ()


@dataclass(frozen=True, slots=True)
class StartShard:
    """Start this shard; idempotent by shard id."""

    spec: ShardSpec
    reason: str


@dataclass(frozen=True, slots=True)
class StopShard:
    """Stop this shard's process group; idempotent."""

    replica_id: str
    shard_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class DrainShard:
    """Let this shard finish what it is doing, then stop it; idempotent."""

    replica_id: str
    shard_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class RemoveWeights:
    """A proposal: the agent re-checks each path before it unlinks."""

    paths: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class LogsRequest:
    """The last lines of one source: `agent` (also when empty) or a shard id."""

    source: str
    lines: int


@dataclass(frozen=True, slots=True)
class LeaderHeartbeat:
    """The leader's life. Frozen: it holds its streams but may not command."""

    loop_tick: int
    frozen: bool = False


DownBody: TypeAlias = (
    "Ack | Provision | StartShard | StopShard | DrainShard | RemoveWeights"
    " | LogsRequest | LeaderHeartbeat"
)


@dataclass(frozen=True, slots=True)
class Down:
    """One message from a leader, with its term."""

    term: int
    message_id: str
    body: DownBody
