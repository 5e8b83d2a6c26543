"""What people see: every field of the contract, and a reason where something is amiss."""

from __future__ import annotations

from llmgw.control import views
from llmgw.control.core.events import NodeKnown, Registered, Ticked
from llmgw.control.core.expiry import Limits
from llmgw.control.core.fleet import Fleet
from llmgw.control.core.plan import Drain, Start, apply_step
from llmgw.domain.messages import Register
from llmgw.domain.shard import Quarantined, ShardState
from tests.support.fleet import attach, catalog, facts, model, report, spec

M = model(aliases=["x"])
S = spec(M)


def test_a_node_nobody_heard_is_shown_as_unknown_without_invented_facts() -> None:
    fleet = Fleet(0.0)
    fleet.fold(NodeKnown("node-a"), 0.0)
    (view,) = views.node_views(fleet, 5.0)
    assert view["state"] == "unknown"
    assert view["connected"] is False
    assert view["last_heard_s"] is None
    assert view["memory_total_bytes"] is None
    assert view["engines"] == []


def test_a_node_shows_its_shards_its_engines_and_what_is_quarantined() -> None:
    fleet = Fleet(0.0)
    left = Quarantined("token", (7, 8), "its spec cannot be read")
    shards = (report(S), report(spec(M, "r-2", port=20_001), ShardState.FAILED))
    message = Register("node-a", facts(problems=("hot",)), shards, (left,))
    fleet.fold(Registered(1, message), 10.0)
    (view,) = views.node_views(fleet, 12.5)
    assert view["last_heard_s"] == 2.5
    assert view["shards"] == 1
    assert view["engines"] == [
        {"engine": "command", "version": "", "state": "installed", "detail": ""}
    ]
    assert view["problems"] == [
        "hot",
        "quarantined: processes [7, 8]: its spec cannot be read",
    ]


def test_a_replica_names_its_process_and_its_endpoint() -> None:
    fleet = Fleet(0.0)
    attach(fleet, "node-a", report(S, pid=42, process_start_ticks=99))
    (view,) = views.replica_views(fleet, {})
    assert (view["pid"], view["process_start_ticks"], view["node"]) == (42, 99, "node-a")
    assert (view["state"], view["endpoint"], view["reason"]) == ("ready", None, "")
    assert view["shards"][0]["shard_id"] == "r-1-0"


def test_a_commanded_shard_says_that_nobody_reported_it() -> None:
    fleet = Fleet(0.0)
    attach(fleet, "node-a")
    apply_step(fleet, Start("node-a", S, "why"), "message", 0.0)
    (view,) = views.replica_views(fleet, {})
    assert (view["state"], view["pid"]) == ("pending", 0)
    assert "not reported yet" in view["reason"]


def test_a_replica_that_is_let_go_says_why_and_counts_no_more() -> None:
    fleet = Fleet(0.0)
    attach(fleet, "node-a", report(S))
    apply_step(fleet, Drain(("node-a", "r-1-0"), "surplus"), "message", 0.0)
    (view,) = views.replica_views(fleet, {})
    assert (view["state"], view["reason"]) == ("draining", "surplus")
    (counted,) = views.model_views(fleet, catalog(M), {"m": "because"})
    assert counted == {
        "name": "m",
        "aliases": ["x"],
        "replicas_wanted": 1,
        "replicas_ready": 0,
        "reason": "because",
    }


def test_a_replica_on_a_lost_node_says_so_and_counts_no_more() -> None:
    fleet = Fleet(0.0)
    attach(fleet, "node-a", report(S))
    fleet.fold(Ticked(Limits()), 90.0)
    (view,) = views.replica_views(fleet, {})
    assert "node node-a is lost" in view["reason"]
    (counted,) = views.model_views(fleet, catalog(M), {})
    assert counted["replicas_ready"] == 0


def test_without_a_catalog_there_are_no_models_to_show() -> None:
    assert views.model_views(Fleet(0.0), None, {}) == []
