"""What routers should see, and the difference to what stands in the store.

Guarantees: only a ready replica that is meant to stay is published; a suspect node keeps its
endpoints; an endpoint on a node not yet heard from stays until the node is lost and its replicas
are replaced; an endpoint whose model left the catalog goes first of all; what is unchanged is
not written.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from llmgw.control.core.replicas import group, url_of
from llmgw.control.core.values import Intent
from llmgw.domain.catalog import profile_spec, spec_hash
from llmgw.domain.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmgw.control.core.fleet import Fleet
    from llmgw.control.core.replicas import Replica
    from llmgw.control.core.values import Shard
    from llmgw.domain.catalog import Catalog, Model


def desired(
    fleet: Fleet, catalog: Catalog, held: Mapping[str, Endpoint | None], *, settled: bool
) -> dict[str, Endpoint]:
    """Endpoints by replica id.

    Args:
        fleet: what is known of nodes and shards.
        catalog: what is in force.
        held: what stands in the store; None is an unreadable value.
        settled: whether the leader has settled.
    """
    serving = [replica for replica in group(fleet) if _serves(replica)]
    elsewhere = Counter(
        replica.head.spec.model for replica in serving if not fleet.is_lost(replica.head.node_id)
    )
    wanted: dict[str, Endpoint] = {}
    for replica in serving:
        model = catalog.models.get(replica.head.spec.model)
        if model is None:
            continue
        if fleet.is_lost(replica.head.node_id) and elsewhere[model.name] >= model.replicas:
            continue
        wanted[replica.replica_id] = _endpoint(fleet, model, replica.head)
    reported = {shard.spec.replica_id for shard in fleet.shards.values()}
    for replica_id, endpoint in held.items():
        if endpoint is None or replica_id in reported:
            continue
        model = catalog.models.get(endpoint.model)
        if model is not None and _may_run(fleet, model, endpoint, elsewhere, settled=settled):
            wanted[replica_id] = endpoint.model_copy(
                update={"aliases": tuple(model.aliases), "weight": model.weight}
            )
    return wanted


def diff(
    wanted: Mapping[str, Endpoint], held: Mapping[str, Endpoint | None]
) -> tuple[dict[str, Endpoint], list[str]]:
    """What to write and which replica ids to remove."""
    puts = {
        replica_id: endpoint
        for replica_id, endpoint in sorted(wanted.items())
        if held.get(replica_id) != endpoint
    }
    return puts, sorted(held.keys() - wanted.keys())


def _serves(replica: Replica) -> bool:
    return replica.is_ready and replica.head.intent is Intent.RUN and replica.head.spec.rank == 0


def _endpoint(fleet: Fleet, model: Model, shard: Shard) -> Endpoint:
    node = fleet.nodes.get(shard.node_id)
    known = node.facts if node is not None else None
    return Endpoint(
        replica_id=shard.spec.replica_id,
        url=url_of(fleet, shard),
        model=model.name,
        aliases=tuple(model.aliases),
        served_model_name=shard.spec.profile.served_model_name,
        engine=shard.spec.profile.engine,
        pool=known.pool if known is not None else shard.spec.pool,
        node_id=shard.node_id,
        weight=model.weight,
        priority=_priority(model, shard),
    )


def _priority(model: Model, shard: Shard) -> int:
    """The profile's position now; a profile that is gone keeps the one it was started with."""
    for priority, profile in enumerate(model.profiles):
        if spec_hash(profile_spec(model, profile)) == shard.spec.spec_hash:
            return priority
    return shard.spec.profile_priority


def _may_run(
    fleet: Fleet, model: Model, endpoint: Endpoint, elsewhere: Counter[str], *, settled: bool
) -> bool:
    """Whether an endpoint that no report speaks of may still be good."""
    node = fleet.nodes.get(endpoint.node_id)
    if node is None:
        return not settled
    if node.registered:
        return False
    return not fleet.is_lost(node.node_id) or elsewhere[model.name] < model.replicas
