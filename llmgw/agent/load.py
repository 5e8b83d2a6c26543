"""How busy the node and each shard are, between two heartbeats.

Numbers come from /proc; what cannot be read is None, which is neither zero nor infinite. Not for
two threads at once: differences are taken to the last sample.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from llmgw.agent import procfs
from llmgw.agent.discovery import memory_limit_bytes, memory_used_bytes
from llmgw.domain.node import NodeLoad, ShardLoad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ha.clock import Clock
    from llmgw.domain.shard import ShardReport

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The node's load, and that of each shard that has a process."""

    node: NodeLoad
    shards: tuple[ShardLoad, ...]


class LoadSampler:
    """Takes samples; CPU figures are None in the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sampled_s: float | None = None
        self._ticks: dict[str, int] = {}

    def sample(self, reports: Sequence[ShardReport]) -> LoadSample:
        """One sample; blocks while /proc is read."""
        now_s = self._clock.now_s()
        elapsed_s = None if self._sampled_s is None else now_s - self._sampled_s
        percent = psutil.cpu_percent(None)
        one, five, fifteen = os.getloadavg()
        memory = psutil.virtual_memory()
        limit, used = memory_limit_bytes(), memory_used_bytes()
        if limit is None or used is None or limit >= memory.total:
            used, available = memory.total - memory.available, memory.available
        else:
            available = max(0, min(limit - used, memory.available))
        node = NodeLoad(
            cpu_percent=None if elapsed_s is None else percent,
            load_1m=one,
            load_5m=five,
            load_15m=fifteen,
            memory_used_bytes=used,
            memory_available_bytes=available,
        )
        shards = self._shards(reports, elapsed_s)
        self._sampled_s = now_s
        return LoadSample(node, shards)

    def _shards(
        self, reports: Sequence[ShardReport], elapsed_s: float | None
    ) -> tuple[ShardLoad, ...]:
        groups = {report.process_group: report.spec.shard_id for report in reports}
        groups.pop(0, None)
        if not groups:
            self._ticks = {}
            return ()
        ticks: dict[str, int] = {}
        pages: dict[str, int] = {}
        for stat in procfs.all_stats():
            if stat.alive and (shard_id := groups.get(stat.group)) is not None:
                ticks[shard_id] = ticks.get(shard_id, 0) + stat.cpu_ticks
                pages[shard_id] = pages.get(shard_id, 0) + stat.resident_pages
        before, self._ticks = self._ticks, ticks
        return tuple(
            ShardLoad(
                shard_id,
                cpu_cores=_cores(before.get(shard_id), now, elapsed_s),
                memory_bytes=pages[shard_id] * _PAGE_BYTES,
            )
            for shard_id, now in ticks.items()
        )


def _cores(before: int | None, now: int, elapsed_s: float | None) -> float | None:
    """Cores used between two samples; a member that ended takes its ticks along, hence the 0."""
    if before is None or not elapsed_s:
        return None
    return max(0.0, (now - before) / _TICKS_PER_S / elapsed_s)
