"""When a new leader may act: per model once its replicas are accounted for, for all at the cap.

Until then nothing is stopped, and nothing is started that a node not yet heard from might
already run. Settling ends once per model and once for all; it never begins again in a term.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmgw.control.core.fleet import Fleet
    from llmgw.domain.catalog import Catalog

NODES_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Settling:
    """How far a leader has settled. `cap_s` is the longest it takes, counted from the start."""

    started_at_s: float
    cap_s: float = 30.0
    done: bool = False
    models: frozenset[str] = frozenset()
    reason: str = "no node was heard yet"

    def is_settled(self, model: str) -> bool:
        """Whether replicas of this model may be started and stopped."""
        return self.done or model in self.models


def advance(settling: Settling, fleet: Fleet, catalog: Catalog, now_s: float) -> Settling:
    """Settling after the fleet, the catalog or the time has changed."""
    if settling.done:
        return settling
    missing = sorted(
        node.node_id
        for node in fleet.nodes.values()
        if not node.registered and not fleet.is_lost(node.node_id)
    )
    if not missing:
        return replace(settling, done=True, reason="")
    if now_s - settling.started_at_s >= settling.cap_s:
        return replace(settling, done=True, reason="")
    running = {s.spec.replica_id: s.spec.model for s in fleet.shards.values() if s.is_wanted}
    accounted = Counter(running.values())
    settled = {
        model.name for model in catalog.models.values() if accounted[model.name] >= model.replicas
    }
    hidden = len(missing) - NODES_SHOWN_MAX
    reason = f"settling: not heard yet from {', '.join(missing[:NODES_SHOWN_MAX])}"
    return replace(
        settling,
        models=settling.models | settled,
        reason=f"{reason} and {hidden} more" if hidden > 0 else reason,
    )
