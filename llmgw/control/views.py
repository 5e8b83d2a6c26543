"""What people see of a term: nodes, models and replicas as JSON values."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from llmgw.control.core.replicas import Replica, group
from llmgw.control.core.values import Intent
from llmgw.domain.shard import ShardState

if TYPE_CHECKING:
    from llmgw.control.core.fleet import Fleet
    from llmgw.control.core.values import Node, Shard
    from llmgw.domain.catalog import Catalog
    from llmgw.domain.endpoint import Endpoint


def node_views(fleet: Fleet, now_s: float) -> list[dict[str, Any]]:
    """Every node of the roster."""
    return [_node(fleet, node, now_s) for _, node in sorted(fleet.nodes.items())]


def replica_views(fleet: Fleet, held: dict[str, Endpoint | None]) -> list[dict[str, Any]]:
    """Every replica, failed ones that are remembered included."""
    return [_replica(fleet, replica, held) for replica in group(fleet)]


def model_views(
    fleet: Fleet, catalog: Catalog | None, reasons: dict[str, str]
) -> list[dict[str, Any]]:
    """Every model in force, and why it has fewer replicas than wanted."""
    if catalog is None:
        return []
    ready: dict[str, int] = {}
    for replica in group(fleet):
        if is_serving(fleet, replica):
            name = replica.head.spec.model
            ready[name] = ready.get(name, 0) + 1
    return [
        {
            "name": model.name,
            "aliases": list(model.aliases),
            "replicas_wanted": model.replicas,
            "replicas_ready": ready.get(model.name, 0),
            "reason": reasons.get(model.name, ""),
        }
        for _, model in sorted(catalog.models.items())
    ]


def is_serving(fleet: Fleet, replica: Replica) -> bool:
    """Ready, meant to stay, and on a node that is not lost."""
    return (
        replica.is_ready
        and replica.head.intent is Intent.RUN
        and not fleet.is_lost(replica.head.node_id)
    )


def _node(fleet: Fleet, node: Node, now_s: float) -> dict[str, Any]:
    facts = node.facts
    return {
        "node_id": node.node_id,
        "connected": node.connected,
        "state": str(node.state),
        "hostname": facts.hostname if facts else "",
        "address": facts.management_address if facts else "",
        "last_heard_s": None if node.heard_at_s is None else round(now_s - node.heard_at_s, 3),
        "pool": facts.pool if facts else "",
        "cpus": facts.cpus if facts else 0,
        "memory_total_bytes": facts.memory_total_bytes if facts else None,
        "load": dataclasses.asdict(node.load) if node.load is not None else None,
        "engines": [
            {
                "engine": engine.engine,
                "version": engine.version,
                "state": str(engine.state),
                "detail": engine.detail,
            }
            for engine in (facts.engines if facts else ())
        ],
        "shards": sum(1 for shard in fleet.shards_of(node.node_id) if not shard.state.is_over),
        "problems": [
            *(facts.problems if facts else ()),
            *(
                f"quarantined: processes {list(found.pids)}: {found.reason}"
                for found in node.quarantined
            ),
        ],
    }


def _replica(fleet: Fleet, replica: Replica, held: dict[str, Endpoint | None]) -> dict[str, Any]:
    head = replica.head
    endpoint = held.get(replica.replica_id)
    return {
        "replica_id": replica.replica_id,
        "model": head.spec.model,
        "profile": head.spec.profile.name,
        "spec_hash": head.spec.spec_hash,
        "state": str(replica.state),
        "node": head.node_id,
        "pid": head.report.pid if head.report else 0,
        "process_start_ticks": head.report.process_start_ticks if head.report else 0,
        "endpoint": endpoint.url if endpoint is not None else None,
        "reason": _reason(fleet, head),
        "restarts": _restarts(fleet, head),
        "shards": [
            {
                "shard_id": shard.spec.shard_id,
                "rank": shard.spec.rank,
                "node": shard.node_id,
                "pid": shard.report.pid if shard.report else 0,
                "state": str(shard.state),
                "reason": _reason(fleet, shard),
            }
            for shard in (*replica.shards, *replica.duplicates)
        ],
    }


def _reason(fleet: Fleet, shard: Shard) -> str:
    """Why the shard is as it is: what its node says, and what the leader means to do."""
    parts = []
    if fleet.is_lost(shard.node_id):
        parts.append(f"node {shard.node_id} is lost")
    if shard.reason:
        parts.append(shard.reason)
    elif shard.report is None:
        parts.append("commanded, not reported yet")
    if shard.intent is not Intent.RUN and shard.state is not ShardState.FAILED:
        parts.append(shard.intent_reason)
    return "; ".join(parts)


def _restarts(fleet: Fleet, shard: Shard) -> int:
    key = (shard.spec.model, shard.spec.spec_hash, shard.node_id)
    failures = fleet.failures.get(key)
    return failures.count if failures is not None else 0
