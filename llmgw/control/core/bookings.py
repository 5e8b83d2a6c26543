"""What is taken: GPUs by UUID, RAM by node, ports by address. Booked from the decision on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.control.core import facts
from llmgw.domain.shard import ShardState

if TYPE_CHECKING:
    from llmgw.control.core.fleet import Fleet
    from llmgw.control.core.values import Shard


@dataclass(frozen=True, slots=True)
class PortRange:
    """Ports for engines; outside the kernel's ephemeral range."""

    first: int = 20_000
    count: int = 10_000


class Bookings:
    """A tally of one pass: built from the fleet, added to as the plan grows."""

    def __init__(self, fleet: Fleet, ports: PortRange) -> None:
        self._range = ports
        self._fleet = fleet
        self._ports: dict[str, set[int]] = {}
        self._cursors = dict(fleet.port_cursors)
        self._memory_mb: Counter[str] = Counter()
        self._gpus: dict[str, set[str]] = {}
        self._shards: Counter[str] = Counter()
        self._replicas: Counter[tuple[str, str]] = Counter()
        self._dirty: set[tuple[str, str, str]] = set()
        for shard in fleet.shards.values():
            if not shard.cleaned:
                self.add(shard)

    def add(self, shard: Shard) -> None:
        """Book what a shard holds; one that failed holds it until its node has cleaned up."""
        node_id, spec = shard.node_id, shard.spec
        node = self._fleet.nodes.get(node_id)
        address = facts.address_of(node.facts if node else None, node_id)
        self._ports.setdefault(address, set()).update(
            port for port in (spec.http_port, spec.rank0_port) if port
        )
        # After a take-over nobody remembers the last port: go on after the highest in use.
        if address not in self._fleet.port_cursors or shard.report is None:
            self._cursors[address] = max(self._cursors.get(address, 0), spec.http_port)
        self._gpus.setdefault(node_id, set()).update(spec.gpu_uuids)
        if not spec.gpu_uuids:
            self._memory_mb[node_id] += spec.profile.memory_mb
        self._shards[node_id] += 1
        if shard.state is ShardState.FAILED:
            self._dirty.add((node_id, spec.model, spec.spec_hash))
        else:
            self._replicas[node_id, spec.model] += 1

    def free_port(self, address: str) -> int | None:
        """The next port that is free, going round, so that one just given up rests."""
        first, count = self._range.first, self._range.count
        taken = self._ports.get(address, set())
        offset = self._cursors.get(address, first - 1) + 1 - first
        for step in range(count):
            port = first + (offset + step) % count
            if port not in taken:
                return port
        return None

    def memory_mb_on(self, node_id: str) -> int:
        """MiB of RAM that CPU shards hold on a node."""
        return self._memory_mb[node_id]

    def gpus_on(self, node_id: str) -> frozenset[str]:
        """UUIDs of GPUs that are taken on a node."""
        return frozenset(self._gpus.get(node_id, ()))

    def shards_on(self, node_id: str) -> int:
        """Shards on a node."""
        return self._shards[node_id]

    def replicas_of(self, node_id: str, model: str) -> int:
        """Shards of one model on a node, failed ones left out."""
        return self._replicas[node_id, model]

    def is_dirty(self, node_id: str, model: str, spec_hash: str) -> bool:
        """Whether something may be left of a failed shard of this kind on a node."""
        return (node_id, model, spec_hash) in self._dirty
