"""Facts about a node, merged: news replaces what it carries and wipes nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmgw.domain.messages import AgentHeartbeat
    from llmgw.domain.node import Gpu, NodeFacts


def merge(known: NodeFacts | None, news: NodeFacts) -> NodeFacts:
    """Facts after a registration.

    GPUs, HCAs, labels and problems are what the registration says: one that is not named fell
    out. What an agent may not have discovered yet (RAM, storage, weights, engines) stays.
    """
    merged = replace(news, problems=unique(news.problems), gpus=by_uuid(news.gpus))
    if known is None:
        return merged
    return replace(
        merged,
        memory_total_bytes=(
            known.memory_total_bytes if news.memory_total_bytes is None else news.memory_total_bytes
        ),
        storage=news.storage or known.storage,
        weights=news.weights or known.weights,
        engines=news.engines or known.engines,
    )


def after_heartbeat(known: NodeFacts, heartbeat: AgentHeartbeat) -> NodeFacts:
    """Facts after a heartbeat: `None` is silence, an empty list is "none"."""
    return replace(
        known,
        problems=(known.problems if heartbeat.problems is None else unique(heartbeat.problems)),
        gpus=known.gpus if heartbeat.gpus is None else by_uuid(heartbeat.gpus),
        storage=known.storage if heartbeat.storage is None else heartbeat.storage,
        weights=known.weights if heartbeat.weights is None else heartbeat.weights,
        engines=known.engines if heartbeat.engines is None else heartbeat.engines,
        memory_total_bytes=(
            known.memory_total_bytes
            if heartbeat.memory_total_bytes is None
            else heartbeat.memory_total_bytes
        ),
    )


def unique(problems: tuple[str, ...]) -> tuple[str, ...]:
    """The same problem twice is one."""
    return tuple(dict.fromkeys(problems))


def by_uuid(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """GPUs by identity: the position in a list says nothing, a UUID named twice is one GPU."""
    return tuple({gpu.uuid: gpu for gpu in gpus}.values())


def address_of(facts: NodeFacts | None, node_id: str) -> str:
    """Where a node's engines listen; nodes that share an address share its ports."""
    return facts.management_address if facts is not None else node_id
