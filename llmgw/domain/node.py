"""What is known of a node: hardware, storage, engines and load, as its agent reports them.

Every value is immutable; a change is a new value. A number that is `None` is unknown, which is
neither zero nor infinite. GPUs are known by UUID, never by position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class InstallationState(StrEnum):
    """How far one engine version is installed on one node."""

    PENDING = "pending"
    INSTALLING = "installing"
    INSTALLED = "installed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Memory in bytes, temperature in degrees Celsius."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    compute_capability: str = ""
    numa_node: int | None = None
    pci_bus_id: str = ""
    driver_version: str = ""
    cuda_version: str = ""
    nvlink_peers: tuple[str, ...] = ()
    ecc_errors_uncorrected: int | None = None
    temperature_celsius: int | None = None
    problems: tuple[str, ...] = ()
    process_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Hca:
    """A host channel adapter: the node's attachment to a fabric."""

    name: str
    fabric: str = ""
    rate_gbps: float | None = None
    numa_node: int | None = None
    state: str = ""


@dataclass(frozen=True, slots=True)
class Storage:
    """A file system that may hold weights."""

    path: str
    free_bytes: int
    total_bytes: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights that lie on a disk of the node."""

    path: str
    size_bytes: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class EngineInstallation:
    """One engine version on one node. `variant` is `cpu`, `cuda` or `rocm`."""

    engine: str
    version: str = ""
    variant: str = "cpu"
    state: InstallationState = InstallationState.INSTALLED
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """Load between two heartbeats. CPU percent is over all cores, memory in bytes."""

    cpu_percent: float | None = None
    load_1m: float | None = None
    load_5m: float | None = None
    load_15m: float | None = None
    memory_used_bytes: int | None = None
    memory_available_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ShardLoad:
    """What one shard's process group uses."""

    shard_id: str
    cpu_cores: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Everything an agent discovers about its node and says at registration."""

    hostname: str
    management_address: str
    management_interface: str = ""
    agent_version: str = ""
    boot_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    pool: str = ""
    cpus: int = 1
    memory_total_bytes: int | None = None
    gpus: tuple[Gpu, ...] = ()
    hcas: tuple[Hca, ...] = ()
    storage: tuple[Storage, ...] = ()
    weights: tuple[Weights, ...] = ()
    engines: tuple[EngineInstallation, ...] = ()
    problems: tuple[str, ...] = ()
