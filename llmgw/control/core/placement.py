"""Where one more replica of a model goes, or why it goes nowhere.

Decides: the first profile (in the catalog's order) that fits some node, the node, its GPUs and
its port. Guarantees: nothing is booked twice (GPUs by UUID, ports per address, RAM per node),
unknown is neither zero nor infinite, and whatever is rejected says why. This version places a
replica on one node only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.control.core import backoff, facts
from llmgw.control.core.values import Node, NodeState
from llmgw.domain.catalog import profile_spec, spec_hash
from llmgw.domain.node import InstallationState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmgw.control.core.backoff import FailureKey, Failures
    from llmgw.control.core.bookings import Bookings
    from llmgw.domain.catalog import Model
    from llmgw.domain.node import Gpu, NodeFacts
    from llmgw.domain.shard import ProfileSpec

MIB = 1 << 20
NODES_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Place:
    """A decision: everything a shard's spec needs besides its ids."""

    node_id: str
    address: str
    profile: ProfileSpec
    spec_hash: str
    profile_priority: int
    http_port: int
    gpu_uuids: tuple[str, ...]
    pool: str


@dataclass(frozen=True, slots=True)
class NoPlace:
    """No node takes it now; the reason is for an operator."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    node_id: str
    address: str
    pool: str
    port: int
    gpu_uuids: tuple[str, ...]
    wastes_gpus: bool
    failures: Failures | None


@dataclass(frozen=True, slots=True)
class Search:
    """One search for a place: for which model, among which nodes, around which bookings."""

    model: Model
    nodes: Mapping[str, Node]
    bookings: Bookings
    failures: Mapping[FailureKey, Failures]
    now_s: float

    def place(self) -> Place | NoPlace:
        """Find a place for one more replica."""
        if not self.nodes:
            return NoPlace("no node has registered")
        reasons = []
        for priority, profile in enumerate(self.model.profiles):
            spec = profile_spec(self.model, profile)
            digest = spec_hash(spec)
            found = self._place_profile(spec, digest)
            if isinstance(found, NoPlace):
                reasons.append(f"profile {profile.name}: {found.reason}")
                continue
            return Place(
                node_id=found.node_id,
                address=found.address,
                profile=spec,
                spec_hash=digest,
                profile_priority=priority,
                http_port=found.port,
                gpu_uuids=found.gpu_uuids,
                pool=found.pool,
            )
        return NoPlace("; ".join(reasons))

    def _place_profile(self, spec: ProfileSpec, digest: str) -> _Candidate | NoPlace:
        if spec.nodes > 1:
            return NoPlace(
                f"spans {spec.nodes} nodes; this version places replicas on one node only"
            )
        candidates: list[_Candidate] = []
        rejected: list[str] = []
        for node in sorted(self.nodes.values(), key=lambda node: node.node_id):
            found = self._fit(spec, digest, node)
            if isinstance(found, _Candidate):
                candidates.append(found)
            else:
                rejected.append(f"{node.node_id}: {found}")
        if not candidates:
            return NoPlace(_listed(rejected))
        best = min(candidates, key=self._rank)
        if best.failures is not None and self.now_s < best.failures.retry_at_s:
            return NoPlace(_waiting(best.node_id, best.failures, self.now_s))
        return best

    def _rank(self, found: _Candidate) -> tuple[object, ...]:
        """Smaller is better: healthy history, spread, CPU work off GPU nodes, the emptiest."""
        failed = found.failures
        gave_up = failed is not None and failed.count >= backoff.FAILURES_PER_NODE_MAX
        return (
            gave_up,
            failed.retry_at_s if gave_up and failed is not None else 0.0,
            self.bookings.replicas_of(found.node_id, self.model.name),
            found.wastes_gpus,
            self.bookings.shards_on(found.node_id),
            found.node_id,
        )

    def _fit(self, spec: ProfileSpec, digest: str, node: Node) -> _Candidate | str:
        known = node.facts
        if known is None:
            return _not_open(node)
        reason = _not_open(node) or _unfit(self.model, spec, known)
        if not reason and self.bookings.is_dirty(node.node_id, self.model.name, digest):
            reason = "what is left of a failed shard is being cleaned up"
        if reason:
            return reason
        gpus = self._hardware(spec, node.node_id, known)
        if isinstance(gpus, str):
            return gpus
        address = facts.address_of(known, node.node_id)
        port = self.bookings.free_port(address)
        if port is None:
            return "no port is free in the range for engines"
        return _Candidate(
            node_id=node.node_id,
            address=address,
            pool=known.pool,
            port=port,
            gpu_uuids=gpus,
            wastes_gpus=bool(known.gpus) and not gpus,
            failures=self.failures.get((self.model.name, digest, node.node_id)),
        )

    def _hardware(self, spec: ProfileSpec, node_id: str, known: NodeFacts) -> tuple[str, ...] | str:
        """The GPUs to use (none on the CPU), or why there are not enough."""
        needed = _gpus_needed(spec)
        if needed:
            return _choose_gpus(spec, needed, known, self.bookings.gpus_on(node_id))
        return _no_memory(spec, known, self.bookings.memory_mb_on(node_id)) or ()


def _not_open(node: Node) -> str:
    if node.state in (NodeState.SUSPECT, NodeState.LOST):
        return f"{node.state}: not heard from for too long"
    if node.state is NodeState.UNKNOWN:
        return "not heard from yet"
    if not node.connected:
        return "its agent is not connected"
    return "" if node.open else "still registering"


def _unfit(model: Model, spec: ProfileSpec, known: NodeFacts) -> str:
    if model.pool and known.pool != model.pool:
        return f"in pool {known.pool!r}, not {model.pool!r}"
    for name, value in sorted(spec.labels.items()):
        if known.labels.get(name) != value:
            return f"has no label {name}={value}"
    of_kind = [engine for engine in known.engines if engine.engine == spec.engine]
    usable = [e for e in of_kind if e.state is InstallationState.INSTALLED]
    if not usable:
        detail = "; ".join(f"{e.state}: {e.detail}" if e.detail else str(e.state) for e in of_kind)
        return f"engine {spec.engine} is not installed" + (f" ({detail})" if detail else "")
    if spec.engine_version and spec.engine_version not in {engine.version for engine in usable}:
        has = ", ".join(sorted(engine.version for engine in usable))
        return f"has {spec.engine} {has}, not {spec.engine_version}"
    return ""


def _gpus_needed(spec: ProfileSpec) -> int:
    if spec.gpus_per_node:
        return spec.gpus_per_node
    return spec.tp * spec.pp if spec.gpu_class else 0


def _no_memory(spec: ProfileSpec, known: NodeFacts, booked_mb: int) -> str:
    if not spec.memory_mb:
        return ""
    if known.memory_total_bytes is None:
        return "its memory is unknown"
    free_mb = known.memory_total_bytes // MIB - booked_mb
    if free_mb >= spec.memory_mb:
        return ""
    return f"{max(0, free_mb)} MiB of memory left, {spec.memory_mb} needed"


def _choose_gpus(
    spec: ProfileSpec, needed: int, known: NodeFacts, booked: frozenset[str]
) -> tuple[str, ...] | str:
    if not known.gpus:
        return "has no GPU"
    free: list[str] = []
    rejected: list[str] = []
    for gpu in known.gpus:
        reason = "booked" if gpu.uuid in booked else _gpu_unfit(spec, gpu)
        if reason:
            rejected.append(f"GPU {gpu.uuid}: {reason}")
        else:
            free.append(gpu.uuid)
    if len(free) >= needed:
        return tuple(free[:needed])
    return f"{len(free)} of {needed} GPUs free ({_listed(rejected)})"


def _gpu_unfit(spec: ProfileSpec, gpu: Gpu) -> str:
    if spec.gpu_class.lower() not in gpu.name.lower():
        return f"is a {gpu.name}, not a {spec.gpu_class}"
    if gpu.problems:
        return gpu.problems[0]
    if not spec.memory_mb:
        return ""
    if gpu.memory_total_bytes is None or gpu.memory_used_bytes is None:
        return "its memory is unknown"
    free_mb = (gpu.memory_total_bytes - gpu.memory_used_bytes) // MIB
    return "" if free_mb >= spec.memory_mb else f"{free_mb} MiB free, {spec.memory_mb} needed"


def _waiting(node_id: str, failures: Failures, now_s: float) -> str:
    times = "once" if failures.count == 1 else f"{failures.count} times in a row"
    wait_s = failures.retry_at_s - now_s
    return f"failed {times} on {node_id}, tried again in {wait_s:.0f} s: {failures.reason}"


def _listed(reasons: list[str]) -> str:
    shown = "; ".join(reasons[:NODES_SHOWN_MAX])
    hidden = len(reasons) - NODES_SHOWN_MAX
    return f"{shown}; and {hidden} more" if hidden > 0 else shown
