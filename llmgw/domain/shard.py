"""Shards: one engine process group on one node, what it was started with and how it is.

A shard's spec holds everything that is needed to know the shard again after agent and leader
have both forgotten it: replica state is never stored, it is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ShardState(StrEnum):
    """The supervisor's states, in the order a healthy shard goes through them."""

    PENDING = "pending"
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether no process of this shard is left."""
        return self in (ShardState.STOPPED, ShardState.FAILED)


@dataclass(frozen=True, slots=True)
class Source:
    """Where weights come from, and the hash of each file (lower-case hex)."""

    uri: str
    sha256: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProfileSpec:
    """A profile with the model's defaults filled in: all an agent needs to start a shard.

    `memory_mb` is per GPU, or of RAM on a CPU node. `startup_timeout_s` is in seconds.
    """

    name: str
    engine: str
    engine_version: str = ""
    gpu_class: str = ""
    tp: int = 1
    pp: int = 1
    gpus_per_node: int = 0
    nodes: int = 1
    memory_mb: int = 0
    fabric: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    startup_timeout_s: float = 600.0
    model_path: str = ""
    source: Source | None = None
    served_model_name: str = ""


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """One shard as it was decided. Ports are booked with the placement.

    `spec_hash` is the profile's (`llmgw.domain.catalog.spec_hash`): two shards with the same
    hash were started the same way. `profile_priority` is the profile's position in the model's
    list; 0 is the best.
    """

    replica_id: str
    shard_id: str
    model: str
    profile: ProfileSpec
    spec_hash: str
    http_port: int
    rank: int = 0
    rank0_address: str = ""
    rank0_port: int = 0
    gpu_uuids: tuple[str, ...] = ()
    hcas: tuple[str, ...] = ()
    pool: str = ""
    fabric: str = ""
    profile_priority: int = 0


@dataclass(frozen=True, slots=True)
class ShardReport:
    """One shard as its agent sees it now.

    `process_start_ticks` is field 22 of /proc/<pid>/stat (clock ticks since boot); with the pid
    and the node's boot id it names one process. `ready_for_s` is 0 unless the shard is ready.
    """

    spec: ShardSpec
    state: ShardState
    pid: int = 0
    process_group: int = 0
    process_start_ticks: int = 0
    reason: str = ""
    ready_for_s: float = 0.0
    exit_code: int | None = None
    last_output: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Processes with our launch token whose spec cannot be read."""

    launch_token: str
    pids: tuple[int, ...]
    reason: str
