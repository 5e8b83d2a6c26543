"""What routers should see, and that only differences are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from llmgw.control.core.endpoints import desired, diff
from llmgw.control.core.events import Disconnected, NodeKnown, Ticked
from llmgw.control.core.expiry import Limits
from llmgw.control.core.fleet import Fleet
from llmgw.control.core.plan import Retire, apply_step
from llmgw.domain.endpoint import Endpoint
from llmgw.domain.shard import ShardState
from tests.support.fleet import QUICK, attach, catalog, model, report, spec, status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmgw.domain.catalog import Catalog

M = model(aliases=["alias"], weight=3)
S = spec(M)


def see(
    fleet: Fleet,
    in_force: Catalog | None = None,
    held: Mapping[str, Endpoint | None] | None = None,
    *,
    settled: bool = True,
) -> dict[str, Endpoint]:
    return desired(fleet, in_force or catalog(M), held or {}, settled=settled)


def a_ready_fleet(**changed: Any) -> Fleet:
    fleet = Fleet(0.0)
    attach(fleet, "node-a", report(S), management_address="10.0.0.1", **changed)
    return fleet


def test_a_ready_replica_is_published_with_all_that_routers_need() -> None:
    assert see(a_ready_fleet(pool="blue")) == {
        "r-1": Endpoint(
            replica_id="r-1",
            url="http://10.0.0.1:20000",
            model="m",
            aliases=("alias",),
            served_model_name="m",
            engine="command",
            pool="blue",
            node_id="node-a",
            weight=3,
            priority=0,
        )
    }


def test_a_bare_ipv6_address_stands_in_brackets() -> None:
    fleet = Fleet(0.0)
    attach(fleet, "node-a", report(S), management_address="fd00::1")
    assert see(fleet)["r-1"].url == "http://[fd00::1]:20000"


def test_only_ready_ones_that_are_to_stay() -> None:
    fleet = a_ready_fleet()
    for state in (ShardState.LOADING, ShardState.DRAINING, ShardState.FAILED):
        status(fleet, "node-a", report(S, state))
        assert see(fleet) == {}
    status(fleet, "node-a", report(S))
    apply_step(fleet, Retire(("node-a", "r-1-0"), "surplus"), "", 0.0)
    assert see(fleet) == {}


def test_a_model_that_left_the_catalog_is_withdrawn_at_once() -> None:
    fleet = a_ready_fleet()
    held = see(fleet)
    assert see(fleet, catalog(model("other")), held, settled=False) == {}


def test_a_node_that_is_away_or_suspect_keeps_its_endpoints() -> None:
    fleet = Fleet(0.0)
    registration = attach(fleet, "node-a", report(S))
    fleet.fold(Disconnected("node-a", registration), 1.0)
    fleet.fold(Ticked(Limits()), 20.0)
    assert set(see(fleet)) == {"r-1"}


def test_a_lost_node_keeps_them_until_others_serve() -> None:
    fleet = a_ready_fleet()
    fleet.fold(Ticked(Limits()), 90.0)
    assert set(see(fleet)) == {"r-1"}
    attach(fleet, "node-b", report(spec(M, "r-2")), now_s=91.0)
    assert set(see(fleet)) == {"r-2"}


def test_changes_of_the_catalog_show_without_a_restart() -> None:
    changed = model(aliases=["new"], weight=9)
    endpoint = see(a_ready_fleet(), catalog(changed))["r-1"]
    assert (endpoint.aliases, endpoint.weight) == (("new",), 9)


def test_the_priority_is_the_profiles_place_in_the_list_now() -> None:
    better = {"name": "better", "engine": "command", "args": ["--better"]}
    changed = model(profiles=[better, {"name": "p", "engine": "command"}])
    assert see(a_ready_fleet(), catalog(changed))["r-1"].priority == 1


def test_a_profile_that_is_gone_does_not_make_its_replica_the_best() -> None:
    fleet = Fleet(0.0)
    attach(fleet, "node-a", report(spec(M, profile_priority=4)))
    assert see(fleet, catalog(model(args=["--changed"])))["r-1"].priority == 4


class TestWhatNobodyReported:
    """Endpoints that an earlier leader left."""

    HELD: Mapping[str, Endpoint | None] = see(a_ready_fleet())

    def test_stays_while_its_node_was_not_heard(self) -> None:
        fleet = Fleet(0.0)
        fleet.fold(NodeKnown("node-a"), 0.0)
        assert set(see(fleet, held=self.HELD, settled=False)) == {"r-1"}
        assert set(see(fleet, held=self.HELD)) == {"r-1"}

    def test_goes_when_its_node_says_it_runs_nothing(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", opened=False)
        assert see(fleet, held=self.HELD, settled=False) == {}

    def test_goes_when_its_node_is_lost_and_others_serve(self) -> None:
        fleet = Fleet(0.0)
        fleet.fold(NodeKnown("node-a"), 0.0)
        fleet.fold(Ticked(Limits()), 90.0)
        assert set(see(fleet, held=self.HELD)) == {"r-1"}
        attach(fleet, "node-b", report(spec(M, "r-2")), now_s=91.0)
        assert set(see(fleet, held=self.HELD)) == {"r-2"}

    def test_on_a_node_nobody_knows_stays_only_while_settling(self) -> None:
        assert set(see(Fleet(0.0), held=self.HELD, settled=False)) == {"r-1"}
        assert see(Fleet(0.0), held=self.HELD) == {}

    def test_shows_changes_of_the_catalog(self) -> None:
        fleet = Fleet(0.0)
        fleet.fold(NodeKnown("node-a"), 0.0)
        endpoint = see(fleet, catalog(model(weight=8)), self.HELD)["r-1"]
        assert (endpoint.weight, endpoint.aliases) == (8, ())

    def test_an_unreadable_one_goes(self) -> None:
        assert see(Fleet(0.0), held={"r-9": None}) == {}
        assert diff({}, {"r-9": None}) == ({}, ["r-9"])


_endpoint = st.builds(
    Endpoint,
    replica_id=st.just("r"),
    url=st.sampled_from(["http://a", "http://b"]),
    model=st.just("m"),
    served_model_name=st.just("m"),
    engine=st.just("command"),
    weight=st.integers(1, 3),
)
_table = st.dictionaries(st.sampled_from("abcde"), _endpoint)


@QUICK
@given(wanted=_table, held=_table)
def test_the_difference_leads_from_what_stands_to_what_is_wanted(
    wanted: dict[str, Endpoint], held: dict[str, Endpoint]
) -> None:
    puts, deletes = diff(wanted, held)
    result = {name: value for name, value in held.items() if name not in deletes} | puts
    assert result == wanted
    assert all(held.get(name) != value for name, value in puts.items())
    assert diff(wanted, result) == ({}, [])
