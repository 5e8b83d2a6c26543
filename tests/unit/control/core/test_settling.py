"""A new leader acts on a model once its replicas are accounted for, on all at the cap."""

from __future__ import annotations

from llmgw.control.core.events import NodeKnown, Ticked
from llmgw.control.core.expiry import Limits
from llmgw.control.core.fleet import Fleet
from llmgw.control.core.settling import Settling, advance
from tests.support.fleet import attach, catalog, model, report, spec

M = model("m", replicas=2)
CATALOG = catalog(M, model("other"))


def a_fleet() -> Fleet:
    fleet = Fleet(100.0)
    for name in ("node-a", "node-b"):
        fleet.fold(NodeKnown(name), 100.0)
    return fleet


def test_is_over_at_once_when_the_roster_is_empty() -> None:
    assert advance(Settling(100.0), Fleet(100.0), CATALOG, 100.0).done


def test_is_over_for_all_when_every_roster_node_has_reported() -> None:
    fleet, settling = a_fleet(), Settling(100.0)
    attach(fleet, "node-a", now_s=101.0)
    settling = advance(settling, fleet, CATALOG, 101.0)
    assert not settling.done
    assert "node-b" in settling.reason
    attach(fleet, "node-b", now_s=102.0)
    assert advance(settling, fleet, CATALOG, 102.0).done


def test_is_over_for_all_at_the_cap() -> None:
    settling = advance(Settling(100.0, cap_s=30.0), a_fleet(), CATALOG, 129.9)
    assert not settling.done
    assert advance(settling, a_fleet(), CATALOG, 130.0).done


def test_is_over_for_a_model_whose_replicas_are_accounted_for() -> None:
    fleet = a_fleet()
    attach(fleet, "node-a", report(spec(M, "r-1")), report(spec(M, "r-2", port=20_001)))
    settling = advance(Settling(100.0), fleet, CATALOG, 101.0)
    assert settling.is_settled("m")
    assert not settling.is_settled("other")
    assert not settling.is_settled("unknown")


def test_does_not_begin_again() -> None:
    fleet = a_fleet()
    attach(fleet, "node-a", report(spec(M, "r-1")), report(spec(M, "r-2", port=20_001)))
    settling = advance(Settling(100.0), fleet, CATALOG, 101.0)
    attach(fleet, "node-a", now_s=102.0)
    settling = advance(settling, fleet, CATALOG, 102.0)
    assert settling.is_settled("m")
    attach(fleet, "node-b", now_s=103.0)
    settling = advance(settling, fleet, CATALOG, 103.0)
    fleet.fold(NodeKnown("node-c"), 104.0)
    assert advance(settling, fleet, CATALOG, 104.0).done


def test_a_lost_node_does_not_hold_it_up() -> None:
    fleet = a_fleet()
    attach(fleet, "node-a", now_s=140.0)
    fleet.fold(Ticked(Limits(suspect_after_s=5.0, lost_after_s=20.0)), 125.0)
    assert advance(Settling(100.0, cap_s=600.0), fleet, CATALOG, 125.0).done
