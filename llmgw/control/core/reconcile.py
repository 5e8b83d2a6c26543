"""Desired against actual: what to start, retire, drain, stop and forget, each with a reason.

Guarantees: nothing is started or stopped for a model that has not settled; nothing ready is
drained while routers may still choose it; an outdated replica goes only when enough others are
ready; a plan applied to its own result is empty. Level-triggered: it looks at what is, not at
what happened. Does not decide where (`placement`) nor what routers see (`endpoints`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.control.core.bookings import Bookings, PortRange
from llmgw.control.core.placement import NoPlace, Place, Search
from llmgw.control.core.plan import Drain, Forget, Plan, Retire, Start, Step, Stop, started
from llmgw.control.core.replicas import Replica, group, is_routed
from llmgw.control.core.values import Intent
from llmgw.domain.catalog import Model, profile_spec, spec_hash
from llmgw.domain.shard import ShardSpec, ShardState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from llmgw.control.core.fleet import Fleet
    from llmgw.control.core.settling import Settling
    from llmgw.control.core.values import Shard, ShardKey
    from llmgw.domain.catalog import Catalog
    from llmgw.domain.endpoint import Endpoint

COMMAND_RETRY_S = 30.0
"""A shard that is still there so long after a drain or stop is told again."""
STARTS_PER_PASS_MAX = 64
"""More wait for the next pass, so that one pass stays short."""
SURGE = 1
"""Replicas above the wanted number while a changed spec is rolled out."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What reconciliation looks at besides the fleet."""

    catalog: Catalog
    settling: Settling
    held: Mapping[str, Endpoint | None]
    """Endpoints that stand in the store, by replica id; None: unreadable."""
    ports: PortRange
    now_s: float


def reconcile(fleet: Fleet, situation: Situation, new_id: Callable[[str], str]) -> Plan:
    """The plan for now. `new_id` makes a fresh replica id for a model's name."""
    return _Pass(fleet, situation, new_id).plan()


def spec_hashes(model: Model) -> frozenset[str]:
    """The hashes under which a replica of this model is up to date."""
    return frozenset(spec_hash(profile_spec(model, profile)) for profile in model.profiles)


def presumed(fleet: Fleet, held: Mapping[str, Endpoint | None]) -> Iterator[Endpoint]:
    """Replicas nobody has reported yet that may well run.

    An endpoint stands for one as long as its node has not been heard from under this leader and
    is not lost.
    """
    known = {shard.spec.replica_id for shard in fleet.shards.values()}
    for endpoint in held.values():
        if endpoint is None or endpoint.replica_id in known:
            continue
        node = fleet.nodes.get(endpoint.node_id)
        if node is not None and not node.registered and not fleet.is_lost(node.node_id):
            yield endpoint


class _Pass:
    def __init__(self, fleet: Fleet, situation: Situation, new_id: Callable[[str], str]) -> None:
        self._fleet = fleet
        self._now = situation
        self._new_id = new_id
        self._bookings = Bookings(fleet, situation.ports)
        self._steps: list[Step] = []
        self._let_go_keys: set[ShardKey] = set()
        self._starts_left = STARTS_PER_PASS_MAX
        self._presumed: dict[str, int] = defaultdict(int)
        for endpoint in presumed(fleet, situation.held):
            self._presumed[endpoint.model] += 1

    def plan(self) -> Plan:
        by_model: dict[str, list[Replica]] = defaultdict(list)
        for replica in group(self._fleet):
            by_model[replica.head.spec.model].append(replica)
        reasons: dict[str, str] = {}
        # Revision 0: no catalog was ever in force. What runs then tells of a store that was lost,
        # not of models that were.
        if self._now.settling.done and self._now.catalog.revision > 0:
            for name in sorted(by_model.keys() - self._now.catalog.models.keys()):
                self._remove_model(name, by_model[name])
        for name, model in sorted(self._now.catalog.models.items()):
            if self._now.settling.is_settled(name):
                reasons[name] = self._one_model(model, by_model[name])
            else:
                reasons[name] = self._now.settling.reason
        return Plan(tuple(self._steps), reasons)

    def _remove_model(self, name: str, replicas: list[Replica]) -> None:
        for replica in replicas:
            for shard in (*replica.shards, *replica.duplicates):
                self._let_go(shard, f"model {name} is no longer in the catalog")
        self._clean_up(replicas, keep=0)

    def _one_model(self, model: Model, replicas: list[Replica]) -> str:
        for replica in replicas:
            for shard in replica.duplicates:
                self._let_go(shard, f"another claim on {shard.spec.shard_id} ran longer")
            for shard in replica.shards:
                if shard.intent is not Intent.RUN and not shard.state.is_over:
                    self._let_go(shard, shard.intent_reason)
        alive = [
            replica
            for replica in replicas
            if replica.is_wanted and not self._fleet.is_lost(replica.head.node_id)
        ]
        hashes = spec_hashes(model)
        current = [r for r in alive if self._is_current(model, hashes, r)]
        outdated = [r for r in alive if r not in current]
        self._retire_outdated(model, current, outdated)
        self._retire_surplus(model, current)
        current, outdated = self._staying(current), self._staying(outdated)
        starts_before = len(self._steps)
        reason = self._start_missing(model, current, outdated)
        started = len(self._steps) - starts_before
        missing = model.replicas - len(current) - len(outdated) - started
        self._clean_up(replicas, keep=max(0, missing))
        return reason

    def _staying(self, replicas: list[Replica]) -> list[Replica]:
        """Those that this very plan does not let go."""
        return [r for r in replicas if not any(s.key in self._let_go_keys for s in r.shards)]

    def _is_current(self, model: Model, hashes: frozenset[str], replica: Replica) -> bool:
        node = self._fleet.nodes.get(replica.head.node_id)
        known = node.facts if node is not None else None
        in_pool = not model.pool or known is None or known.pool == model.pool
        return replica.head.spec.spec_hash in hashes and in_pool

    def _retire_outdated(
        self, model: Model, current: list[Replica], outdated: list[Replica]
    ) -> None:
        reason = "its spec is no longer what the catalog says"
        ready = [replica for replica in outdated if replica.is_ready]
        for replica in outdated:
            if not replica.is_ready:
                self._let_go_replica(replica, f"{reason}, and it serves nobody yet")
        enough = sum(1 for replica in current if replica.is_ready) + len(ready) - model.replicas
        for replica in sorted(ready, key=_youngest_first)[: max(0, enough)]:
            self._let_go_replica(replica, f"{reason}; a new replica is ready")

    def _retire_surplus(self, model: Model, current: list[Replica]) -> None:
        surplus = len(current) - model.replicas
        for replica in sorted(current, key=_youngest_first)[: max(0, surplus)]:
            self._let_go_replica(
                replica, f"{len(current)} replicas run and {model.replicas} are wanted"
            )

    def _start_missing(self, model: Model, current: list[Replica], outdated: list[Replica]) -> str:
        unheard = self._presumed[model.name]
        missing = model.replicas - len(current) - unheard
        if outdated:
            total = len(current) + len(outdated) + unheard
            missing = min(missing, model.replicas + SURGE - total)
        for _ in range(min(missing, self._starts_left)):
            found = Search(
                model,
                self._fleet.nodes,
                self._bookings,
                self._fleet.failures,
                self._now.now_s,
            ).place()
            if isinstance(found, NoPlace):
                return found.reason
            self._start(model, found, rolling=bool(outdated))
        return self._why_fewer(model, current, outdated, unheard)

    def _start(self, model: Model, found: Place, *, rolling: bool) -> None:
        replica_id = self._new_id(model.name)
        spec = ShardSpec(
            replica_id=replica_id,
            shard_id=f"{replica_id}-0",
            model=model.name,
            profile=found.profile,
            spec_hash=found.spec_hash,
            http_port=found.http_port,
            rank0_address=found.address,
            gpu_uuids=found.gpu_uuids,
            pool=found.pool,
            profile_priority=found.profile_priority,
        )
        why = "its spec changed" if rolling else f"{model.replicas} replicas are wanted"
        step = Start(found.node_id, spec, f"{why}; {found.node_id} has room")
        self._steps.append(step)
        self._starts_left -= 1
        registration = self._fleet.nodes[found.node_id].registration
        self._bookings.add(started(step, registration, "", self._now.now_s))

    def _why_fewer(
        self, model: Model, current: list[Replica], outdated: list[Replica], unheard: int
    ) -> str:
        ready = sum(1 for replica in (*current, *outdated) if replica.is_ready)
        if ready >= model.replicas:
            return ""
        if unheard:
            return f"{unheard} of its replicas are on nodes not heard from yet"
        return f"{model.replicas - ready} of {model.replicas} replicas are on their way"

    # ---- letting go ------------------------------------------------------------------------------

    def _let_go_replica(self, replica: Replica, reason: str) -> None:
        for shard in replica.shards:
            self._let_go(shard, reason)

    def _let_go(self, shard: Shard, reason: str) -> None:
        """The next thing to do with a shard that should go: withdraw, then drain or stop."""
        if shard.key in self._let_go_keys or shard.state.is_over or self._was_told(shard):
            return
        routed = is_routed(self._fleet, shard, self._now.held.get(shard.spec.replica_id))
        step: Step | None = None
        if routed and shard.intent is Intent.RUN:
            step = Retire(shard.key, reason)
        elif not routed and self._can_send(shard) and shard.state is not ShardState.DRAINING:
            kind = Drain if shard.state is ShardState.READY else Stop
            step = kind(shard.key, reason)
        if step is not None:
            self._let_go_keys.add(shard.key)
            self._steps.append(step)

    def _was_told(self, shard: Shard) -> bool:
        return (
            shard.intent in (Intent.DRAIN, Intent.STOP)
            and self._now.now_s - shard.intent_at_s < COMMAND_RETRY_S
        )

    def _can_send(self, shard: Shard) -> bool:
        node = self._fleet.nodes.get(shard.node_id)
        return node is not None and node.connected and node.open

    def _clean_up(self, replicas: list[Replica], *, keep: int) -> None:
        """Clean up after failed shards; remember as many as there are replicas missing."""
        failed = [
            shard
            for replica in replicas
            for shard in (*replica.shards, *replica.duplicates)
            if shard.state is ShardState.FAILED
        ]
        for shard in failed:
            if not shard.cleaned and not self._was_told(shard) and self._can_send(shard):
                self._steps.append(Stop(shard.key, f"it failed: {shard.reason}"))
        cleaned = sorted(
            (shard for shard in failed if shard.cleaned),
            key=lambda shard: (-shard.since_s, shard.key),
        )
        for shard in cleaned[keep:]:
            self._steps.append(Forget(shard.key, "it is no longer needed to say why"))


def _youngest_first(replica: Replica) -> tuple[object, ...]:
    """Those that serve nobody first, then those that became ready last."""
    since_s = replica.head.ready_since_s
    if not replica.is_ready or since_s is None:
        return (0, -replica.head.since_s, replica.replica_id)
    return (1, -since_s, replica.replica_id)
