"""Builders for tests of the control plane's decisions: nodes, models, shards and what they say."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import hypothesis

from llmgw.control.core.bookings import PortRange
from llmgw.control.core.events import Opened, Registered, StatusCame
from llmgw.control.core.plan import apply_step
from llmgw.control.core.reconcile import Situation, reconcile
from llmgw.control.core.settling import Settling
from llmgw.domain.catalog import Catalog, Model, make_catalog, profile_spec, spec_hash
from llmgw.domain.messages import Register, ShardStatus
from llmgw.domain.node import EngineInstallation, NodeFacts
from llmgw.domain.shard import ShardReport, ShardSpec, ShardState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from llmgw.control.core.fleet import Fleet
    from llmgw.control.core.plan import Plan
    from llmgw.domain.endpoint import Endpoint

GIB = 1 << 30
QUICK = hypothesis.settings(
    max_examples=40, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
SETTLED = Settling(started_at_s=0.0, done=True)


def facts(node_id: str = "node-a", **changed: Any) -> NodeFacts:
    """What a CPU node with the `command` engine says of itself."""
    known: dict[str, Any] = {
        "hostname": node_id,
        "management_address": f"10.0.0.{1 + sum(node_id.encode()) % 250}",
        "cpus": 4,
        "memory_total_bytes": 16 * GIB,
        "engines": (EngineInstallation("command"),),
    }
    return NodeFacts(**(known | changed))


def model(name: str = "m", *, replicas: int = 1, **changed: Any) -> Model:
    """A valid model; `args`, `memory_mb` and other fields of the profile go to its only one."""
    fields = {"aliases", "pool", "weight", "profiles"}
    profile = {key: changed.pop(key) for key in list(changed) if key not in fields}
    raw = {
        "name": name,
        "replicas": replicas,
        "profiles": [{"name": "p", "engine": "command"} | profile],
    }
    return Model.model_validate(raw | changed)


def catalog(*models: Model, revision: int = 1) -> Catalog:
    return make_catalog(revision, models)


def spec(of: Model, replica_id: str = "r-1", *, port: int = 20_000, **changed: Any) -> ShardSpec:
    """A shard of the model's first profile."""
    profile = profile_spec(of, of.profiles[0])
    known: dict[str, Any] = {
        "replica_id": replica_id,
        "shard_id": f"{replica_id}-0",
        "model": of.name,
        "profile": profile,
        "spec_hash": spec_hash(profile),
        "http_port": port,
    }
    return ShardSpec(**(known | changed))


def report(shard: ShardSpec, state: ShardState = ShardState.READY, **changed: Any) -> ShardReport:
    return ShardReport(shard, state, **({"pid": 100, "process_start_ticks": 7} | changed))


_registrations = itertools.count(1)


def attach(
    fleet: Fleet,
    node_id: str,
    *reports: ShardReport,
    now_s: float = 0.0,
    opened: bool = True,
    **changed: Any,
) -> int:
    """A node registers on a new stream, with these shards; returns the registration."""
    registration = next(_registrations)
    message = Register(node_id, facts(node_id, **changed), tuple(reports))
    fleet.fold(Registered(registration, message), now_s)
    if opened:
        fleet.fold(Opened(node_id, registration), now_s)
    return registration


def status(
    fleet: Fleet, node_id: str, said: ShardReport, *, now_s: float = 0.0, **more: Any
) -> list[str]:
    return fleet.fold(StatusCame(node_id, ShardStatus(said, **more)), now_s)


def ids() -> Callable[[str], str]:
    """Replica ids that count up."""
    counter = itertools.count(1)
    return lambda name: f"{name}-{next(counter)}"


def situation(
    in_force: Catalog,
    *,
    held: Mapping[str, Endpoint | None] | None = None,
    settling: Settling = SETTLED,
    now_s: float = 0.0,
    ports: PortRange | None = None,
) -> Situation:
    return Situation(in_force, settling, held or {}, ports or PortRange(), now_s)


def plan(
    fleet: Fleet, in_force: Catalog, *, new_id: Callable[[str], str] | None = None, **more: Any
) -> Plan:
    return reconcile(fleet, situation(in_force, **more), new_id or ids())


def take(fleet: Fleet, planned: Plan, *, now_s: float = 0.0) -> None:
    """Take every step, as if each command had been queued."""
    for number, step in enumerate(planned.steps):
        apply_step(fleet, step, f"message-{number}", now_s)
