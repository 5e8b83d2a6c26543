"""What this node is: host, processors, memory, storage, engines.

A limit of the cgroup counts as the node's size, under cgroup v1 and v2 alike. Discovery of an
absent thing is not an error; what cannot be read is None.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from llmgw.agent import procfs
from llmgw.domain.node import NodeFacts, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from llmgw.agent.engines.base import Engine

CGROUP_ROOT = Path("/sys/fs/cgroup")
# cgroup v1 says "no limit" with a number near 2**63.
_UNLIMITED_BYTES = 1 << 60


def cpu_count(root: Path = CGROUP_ROOT, own: Path = procfs.PROC / "self/cgroup") -> int:
    """Processors this node may use: affinity and CPU quota, at least 1."""
    count = float(len(os.sched_getaffinity(0)))
    for folder in _folders(root, own, "cpu"):
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if both := _read(folder / "cpu.max"):
            quota, _, period = both.partition(" ")
        if quota and period and quota.isdigit() and int(period) > 0:
            count = min(count, int(quota) / int(period))
    return max(1, math.ceil(count))


def memory_limit_bytes(
    root: Path = CGROUP_ROOT, own: Path = procfs.PROC / "self/cgroup"
) -> int | None:
    """The tightest memory limit of the cgroup and those above it; None without one."""
    limits = [
        int(text)
        for folder in _folders(root, own, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (text := _read(folder / name)) is not None and text.isdigit()
    ]
    return min((limit for limit in limits if limit < _UNLIMITED_BYTES), default=None)


def memory_used_bytes(
    root: Path = CGROUP_ROOT, own: Path = procfs.PROC / "self/cgroup"
) -> int | None:
    """What the cgroup uses, without file caches that can go at once; None when unreadable."""
    for folder in _folders(root, own, "memory"):
        for name in ("memory.current", "memory.usage_in_bytes"):
            text = _read(folder / name)
            if text is not None and text.isdigit():
                return max(0, int(text) - _inactive_file_bytes(folder))
    return None


def memory_total_bytes() -> int:
    """RAM of this node, or its cgroup's limit when that is less."""
    total = int(psutil.virtual_memory().total)
    limit = memory_limit_bytes()
    return total if limit is None else min(total, limit)


def interface_of(address: str) -> str:
    """The network interface that carries an address; empty when none does."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(item.address.partition("%")[0] == address for item in addresses):
            return name
    return ""


class Discovery:
    """Gathers the facts of a registration."""

    def __init__(
        self,
        *,
        address: str,
        pool: str,
        labels: Mapping[str, str],
        state_dir: Path,
        engines: Mapping[str, Engine],
    ) -> None:
        self._address = address
        self._pool = pool
        self._labels = labels
        self._state_dir = state_dir
        self._engines = engines

    def facts(self, problems: tuple[str, ...]) -> NodeFacts:
        """Everything as it is now; blocks while the system is read."""
        disk = shutil.disk_usage(self._state_dir)
        installations = (engine.installation() for engine in self._engines.values())
        return NodeFacts(
            hostname=socket.gethostname(),
            management_address=self._address,
            management_interface=interface_of(self._address),
            agent_version=importlib.metadata.version("llmgw"),
            boot_id=procfs.boot_id(),
            labels=dict(self._labels),
            pool=self._pool,
            cpus=cpu_count(),
            memory_total_bytes=memory_total_bytes(),
            storage=(Storage(str(self._state_dir), disk.free, disk.total),),
            engines=tuple(item for item in installations if item is not None),
            problems=problems,
        )


def _folders(root: Path, own: Path, controller: str) -> Iterator[Path]:
    """The cgroup's own folder, then those above it, for one controller."""
    for line in (_read(own) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top = root
        elif controller in controllers.split(","):
            top = next((f for f in (root / controllers, root / controller) if f.is_dir()), root)
        else:
            continue
        folder = top / path.lstrip("/")
        # Inside a container the path may name a folder that only the host sees.
        yield from (f for f in (folder, *folder.parents) if f.is_relative_to(top) and f.is_dir())


def _inactive_file_bytes(folder: Path) -> int:
    for line in (_read(folder / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name in {"total_inactive_file", "inactive_file"}:
            return int(value)
    return 0


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
