"""Shards grouped into replicas: one claim per rank stays, the others are duplicates.

Of two claims on one rank the longest-running healthy one stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.control.core import facts
from llmgw.control.core.values import Intent
from llmgw.domain.shard import ShardState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmgw.control.core.fleet import Fleet
    from llmgw.control.core.values import Shard
    from llmgw.domain.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Replica:
    """One running copy of a model: one shard per rank, and claims that lost."""

    replica_id: str
    shards: tuple[Shard, ...]
    duplicates: tuple[Shard, ...] = ()

    @property
    def head(self) -> Shard:
        """The shard that serves HTTP: the lowest rank known."""
        return self.shards[0]

    @property
    def is_wanted(self) -> bool:
        """Alive in every rank, and meant to stay so."""
        return all(shard.is_wanted for shard in self.shards)

    @property
    def is_ready(self) -> bool:
        """Whether it serves: rank 0 is ready and no rank failed."""
        return self.head.state is ShardState.READY and not any(
            shard.state.is_over for shard in self.shards
        )

    @property
    def state(self) -> ShardState:
        """A failed rank fails the replica; otherwise it is as rank 0 is."""
        if any(shard.state is ShardState.FAILED for shard in self.shards):
            return ShardState.FAILED
        if self.head.state is ShardState.READY and self.head.intent is not Intent.RUN:
            return ShardState.DRAINING
        return self.head.state


def group(fleet: Fleet) -> list[Replica]:
    """All replicas, in order of their ids."""
    claims: dict[str, dict[int, list[Shard]]] = {}
    for shard in fleet.shards.values():
        ranks = claims.setdefault(shard.spec.replica_id, {})
        ranks.setdefault(shard.spec.rank, []).append(shard)
    return [
        _replica(replica_id, [_ordered(fleet, claims[replica_id][rank]) for rank in
                              sorted(claims[replica_id])])
        for replica_id in sorted(claims)
    ]  # fmt: skip


def url_of(fleet: Fleet, shard: Shard) -> str:
    """Where a shard answers; a bare IPv6 address stands in brackets."""
    node = fleet.nodes.get(shard.node_id)
    address = facts.address_of(node.facts if node else None, shard.node_id)
    host = f"[{address}]" if ":" in address and not address.startswith("[") else address
    return f"http://{host}:{shard.spec.http_port}"


def is_routed(fleet: Fleet, shard: Shard, held: Endpoint | None) -> bool:
    """Whether routers may still send requests to this very shard."""
    return held is not None and held.url == url_of(fleet, shard)


def _replica(replica_id: str, ranks: Iterable[list[Shard]]) -> Replica:
    listed = list(ranks)
    return Replica(
        replica_id,
        tuple(claims[0] for claims in listed),
        tuple(shard for claims in listed for shard in claims[1:]),
    )


def _ordered(fleet: Fleet, claims: list[Shard]) -> list[Shard]:
    def rank(shard: Shard) -> tuple[object, ...]:
        ready = shard.state is ShardState.READY
        return (
            fleet.is_lost(shard.node_id),
            not shard.is_wanted,
            not ready,
            shard.ready_since_s if ready and shard.ready_since_s is not None else shard.since_s,
            shard.node_id,
        )

    return sorted(claims, key=rank)
