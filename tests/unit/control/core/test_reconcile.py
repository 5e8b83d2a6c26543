"""Desired against actual: every case of a plan, and the properties that hold for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from llmgw.control.core import endpoints
from llmgw.control.core.events import Disconnected, NodeKnown, Ticked
from llmgw.control.core.expiry import Limits
from llmgw.control.core.fleet import Fleet
from llmgw.control.core.plan import Drain, Forget, Plan, Start, Stop
from llmgw.control.core.reconcile import reconcile
from llmgw.control.core.settling import Settling
from llmgw.domain.shard import ShardState
from tests.support.fleet import (
    QUICK,
    SETTLED,
    attach,
    catalog,
    ids,
    model,
    plan,
    report,
    situation,
    spec,
    status,
    take,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmgw.domain.catalog import Catalog
    from llmgw.domain.endpoint import Endpoint

M = model()
S = spec(M)
KEY = ("node-a", "r-1-0")


def held_for(fleet: Fleet, in_force: Catalog) -> Mapping[str, Endpoint | None]:
    """The endpoints as they stand once published."""
    return dict(endpoints.desired(fleet, in_force, {}, settled=True))


def kinds(planned: Plan) -> list[str]:
    return [type(step).__name__ for step in planned.steps]


class TestStart:
    """What is missing is started."""

    def test_what_is_missing_with_a_reason(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a")
        (step,) = plan(fleet, catalog(M)).steps
        assert isinstance(step, Start)
        assert step.node_id == "node-a"
        assert step.spec.replica_id == "m-1"
        assert step.spec.spec_hash == S.spec_hash
        assert "1 replicas are wanted" in step.reason

    def test_nothing_when_the_fleet_is_as_wanted(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S))
        planned = plan(fleet, catalog(M))
        assert planned.steps == ()
        assert planned.reasons == {"m": ""}

    def test_a_take_over_starts_and_stops_nothing(self) -> None:
        """A new leader that hears what runs finds nothing to do, whatever state it is in."""
        fleet = Fleet(0.0)
        states = [ShardState.READY, ShardState.LOADING, ShardState.STARTING, ShardState.PENDING]
        reports = [
            report(spec(M, f"r-{i}", port=20_000 + i), state) for i, state in enumerate(states)
        ]
        attach(fleet, "node-a", *reports)
        assert plan(fleet, catalog(model(replicas=4))).steps == ()

    def test_a_suspect_node_keeps_its_replicas(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S))
        attach(fleet, "node-b", now_s=20.0)
        fleet.fold(Ticked(Limits()), 20.0)
        assert plan(fleet, catalog(M), now_s=20.0).steps == ()

    def test_a_lost_node_is_replaced(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S))
        attach(fleet, "node-b", now_s=90.0)
        fleet.fold(Ticked(Limits()), 90.0)
        (step,) = plan(fleet, catalog(M), now_s=90.0).steps
        assert isinstance(step, Start)
        assert step.node_id == "node-b"

    def test_a_lost_node_that_returns_keeps_its_longer_running_copy(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-b", report(spec(M, "r-2")), now_s=90.0)
        attach(fleet, "node-a", report(S, ready_for_s=500.0), now_s=100.0)
        (step,) = plan(fleet, catalog(M), now_s=100.0).steps
        assert isinstance(step, Drain)
        assert step.key == ("node-b", "r-2-0")

    def test_a_model_that_cannot_be_placed_says_why_and_leaves_no_step(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", engines=())
        planned = plan(fleet, catalog(M))
        assert planned.steps == ()
        assert "engine command is not installed" in planned.reasons["m"]

    def test_a_pass_starts_only_so_many(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a")
        assert len(plan(fleet, catalog(model(replicas=500))).steps) == 64


class TestSettling:
    """Before a leader has settled."""

    UNSETTLED = Settling(0.0, reason="settling: not heard yet from node-b")

    def test_nothing_is_started_or_stopped(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(spec(model("gone"), "gone")), report(S, ShardState.FAILED))
        planned = plan(fleet, catalog(model("new")), settling=self.UNSETTLED)
        assert planned.steps == ()
        assert "not heard yet from node-b" in planned.reasons["new"]

    def test_a_model_that_is_accounted_for_may_be_changed(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S), report(spec(M, "r-2", port=20_001)))
        only_m = Settling(0.0, models=frozenset({"m"}))
        assert kinds(plan(fleet, catalog(M, model("new")), settling=only_m)) == ["Drain"]

    def test_an_endpoint_on_an_unheard_node_stands_for_a_replica_until_it_is_lost(self) -> None:
        """After the cap, too: time makes a node lost, not the leader's haste."""
        before = Fleet(0.0)
        attach(before, "node-b", report(S))
        held = held_for(before, catalog(M))
        fleet = Fleet(0.0)
        fleet.fold(NodeKnown("node-b"), 0.0)
        attach(fleet, "node-a", now_s=31.0)
        planned = plan(fleet, catalog(M), held=held, now_s=31.0)
        assert planned.steps == ()
        assert "not heard from yet" in planned.reasons["m"]
        attach(fleet, "node-a", now_s=90.0)
        fleet.fold(Ticked(Limits()), 90.0)
        assert kinds(plan(fleet, catalog(M), held=held, now_s=90.0)) == ["Start"]


class TestRemoval:
    """Withdraw, drain, stop: in this order."""

    def test_endpoint_first_then_drain(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S))
        held = held_for(fleet, catalog(M))
        planned = plan(fleet, catalog(), held=held)
        assert kinds(planned) == ["Retire"]
        take(fleet, planned)
        assert plan(fleet, catalog(), held=held).steps == ()
        (step,) = plan(fleet, catalog(), held={}).steps
        assert isinstance(step, Drain)
        assert "no longer in the catalog" in step.reason
        # A store without any catalog was lost; nobody removed a model from it.
        assert plan(fleet, catalog(revision=0), held={}).steps == ()

    def test_what_serves_nobody_is_stopped(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S, ShardState.LOADING))
        assert kinds(plan(fleet, catalog())) == ["Stop"]

    def test_a_drain_is_told_once_and_again_after_a_while(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S))
        take(fleet, plan(fleet, catalog()))
        assert plan(fleet, catalog(), now_s=29.0).steps == ()
        assert kinds(plan(fleet, catalog(), now_s=30.0)) == ["Drain"]
        status(fleet, "node-a", report(S, ShardState.DRAINING))
        assert plan(fleet, catalog(), now_s=60.0).steps == ()

    def test_waits_for_an_agent_that_is_away(self) -> None:
        fleet = Fleet(0.0)
        fleet.fold(Disconnected("node-a", attach(fleet, "node-a", report(S))), 0.0)
        assert plan(fleet, catalog()).steps == ()


class TestSurplus:
    """More than wanted."""

    def test_what_is_not_ready_goes_first_then_the_youngest(self) -> None:
        fleet = Fleet(0.0)
        old = report(spec(M, "old", port=1), ready_for_s=50.0)
        young = report(spec(M, "young", port=2), ready_for_s=5.0)
        loading = report(spec(M, "loading", port=3), ShardState.LOADING)
        attach(fleet, "node-a", old, young, loading, now_s=100.0)
        planned = plan(fleet, catalog(M))
        assert [(type(s), s.key[1]) for s in planned.steps if not isinstance(s, Start)] == [
            (Stop, "loading-0"),
            (Drain, "young-0"),
        ]

    def test_of_two_claims_on_one_rank_the_longest_running_healthy_one_stays(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S, ready_for_s=5.0), now_s=100.0)
        attach(fleet, "node-b", report(S, ready_for_s=50.0), now_s=100.0)
        attach(fleet, "node-c", report(S, ShardState.LOADING), now_s=100.0)
        held = held_for(fleet, catalog(M))
        planned = plan(fleet, catalog(M), held=held)
        steps = {(type(s).__name__, s.key[0]) for s in planned.steps if not isinstance(s, Start)}
        assert steps == {("Drain", "node-a"), ("Stop", "node-c")}


class TestChangedSpec:
    """The new one first, then the old one goes."""

    NEW = model(args=["--changed"])

    def test_the_new_one_is_started_first(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S))
        planned = plan(fleet, catalog(self.NEW))
        assert kinds(planned) == ["Start"]
        take(fleet, planned)
        assert plan(fleet, catalog(self.NEW)).steps == ()

    def test_the_old_one_goes_once_the_new_one_is_ready(self) -> None:
        fleet = Fleet(0.0)
        new = spec(self.NEW, "r-2", port=20_001)
        attach(fleet, "node-a", report(S), report(new, ShardState.LOADING))
        in_force = catalog(self.NEW)
        held = held_for(fleet, in_force)
        assert plan(fleet, in_force, held=held).steps == ()
        status(fleet, "node-a", report(new))
        planned = plan(fleet, in_force, held=held)
        assert kinds(planned) == ["Retire"]
        assert not isinstance(planned.steps[0], Start)
        assert planned.steps[0].key == KEY

    def test_goes_one_at_a_time(self) -> None:
        fleet = Fleet(0.0)
        old = [report(spec(M, f"old-{i}", port=20_000 + i)) for i in range(3)]
        attach(fleet, "node-a", *old)
        assert kinds(plan(fleet, catalog(model(replicas=3, args=["--changed"])))) == ["Start"]

    def test_with_no_room_the_old_one_stays_and_the_reason_is_told(self) -> None:
        fleet = Fleet(0.0)
        old, new = model(memory_mb=10_000), model(memory_mb=10_000, args=["--changed"])
        attach(fleet, "node-a", report(spec(old)))
        planned = plan(fleet, catalog(new))
        assert planned.steps == ()
        assert "10000 needed" in planned.reasons["m"]

    def test_what_needs_no_new_process_starts_none(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S))
        same = model(weight=7, aliases=["other"], startup_timeout=9.0)
        assert plan(fleet, catalog(same)).steps == ()

    def test_a_replica_outside_the_models_pool_moves(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S))
        attach(fleet, "node-b", pool="blue")
        (step,) = plan(fleet, catalog(model(pool="blue"))).steps
        assert isinstance(step, Start)
        assert step.node_id == "node-b"


class TestFailure:
    """Clean up, wait, try again."""

    def test_is_cleaned_up_before_it_is_tried_again(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S, ShardState.STARTING))
        status(fleet, "node-a", report(S, ShardState.FAILED, reason="exit 1"))
        planned = plan(fleet, catalog(M), now_s=100.0)
        assert kinds(planned) == ["Stop"]
        assert "exit 1" in planned.steps[0].reason
        take(fleet, planned, now_s=100.0)
        status(fleet, "node-a", report(S, ShardState.STOPPED), now_s=100.0)
        assert kinds(plan(fleet, catalog(M), now_s=100.0)) == ["Start", "Forget"]

    def test_stays_visible_until_something_takes_its_place(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S, ShardState.STARTING))
        status(fleet, "node-a", report(S, ShardState.FAILED, reason="exit 1"))
        take(fleet, plan(fleet, catalog(M)))
        status(fleet, "node-a", report(S, ShardState.STOPPED))
        waiting = plan(fleet, catalog(M), now_s=0.5)
        assert waiting.steps == ()
        assert "exit 1" in waiting.reasons["m"]
        assert fleet.shards[KEY].reason == "exit 1"
        take(fleet, plan(fleet, catalog(M), now_s=1.0), now_s=1.0)
        assert KEY not in fleet.shards

    def test_is_forgotten_with_its_model(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", report(S, ShardState.FAILED))
        take(fleet, plan(fleet, catalog()))
        status(fleet, "node-a", report(S, ShardState.STOPPED))
        planned = plan(fleet, catalog())
        assert [type(step) for step in planned.steps] == [Forget]
        take(fleet, planned)
        assert not fleet.shards


# ---- properties ----------------------------------------------------------------------------------

_shards = st.lists(
    st.tuples(
        st.sampled_from(["m", "n", "gone"]),
        st.sampled_from(["node-a", "node-b", "node-c"]),
        st.sampled_from([s for s in ShardState if s is not ShardState.STOPPED]),
        st.booleans(),
        st.integers(0, 100),
    ),
    max_size=10,
)
_wanted = st.tuples(st.integers(0, 4), st.integers(0, 4))


def a_fleet(shards: list[tuple[str, str, ShardState, bool, int]]) -> Fleet:
    fleet = Fleet(0.0)
    by_node: dict[str, list[object]] = {"node-a": [], "node-b": []}
    for number, (name, node_id, state, outdated, ready_for_s) in enumerate(shards):
        of = model(name, args=["--old"]) if outdated else model(name)
        said = report(
            spec(of, f"r-{number}", port=20_000 + number), state, ready_for_s=float(ready_for_s)
        )
        by_node.setdefault(node_id, []).append(said)
    for node_id, reports in by_node.items():
        attach(fleet, node_id, *reports, now_s=200.0)  # type: ignore[arg-type]
    return fleet


def in_force_for(wanted: tuple[int, int]) -> Catalog:
    return catalog(model("m", replicas=wanted[0]), model("n", replicas=wanted[1]))


@QUICK
@given(shards=_shards, wanted=_wanted, published=st.booleans())
def test_a_plan_on_its_own_result_is_empty(
    shards: list[tuple[str, str, ShardState, bool, int]],
    wanted: tuple[int, int],
    *,
    published: bool,
) -> None:
    fleet, in_force = a_fleet(shards), in_force_for(wanted)
    held = held_for(fleet, in_force) if published else {}
    first = plan(fleet, in_force, held=held, now_s=200.0)
    take(fleet, first, now_s=200.0)
    assert plan(fleet, in_force, held=held, now_s=200.0).steps == ()


@QUICK
@given(shards=_shards, wanted=_wanted)
def test_nothing_is_started_or_stopped_while_settling(
    shards: list[tuple[str, str, ShardState, bool, int]], wanted: tuple[int, int]
) -> None:
    fleet, in_force = a_fleet(shards), in_force_for(wanted)
    assert plan(fleet, in_force, settling=Settling(0.0)).steps == ()


@QUICK
@given(shards=_shards, wanted=_wanted)
def test_nothing_that_routers_may_choose_is_drained_or_stopped(
    shards: list[tuple[str, str, ShardState, bool, int]], wanted: tuple[int, int]
) -> None:
    fleet, in_force = a_fleet(shards), in_force_for(wanted)
    held = held_for(fleet, in_force)
    for step in plan(fleet, in_force, held=held, now_s=200.0).steps:
        if isinstance(step, Drain | Stop):
            assert fleet.shards[step.key].spec.replica_id not in held


@QUICK
@given(shards=_shards, wanted=_wanted)
def test_no_change_takes_the_ready_ones_below_what_is_wanted(
    shards: list[tuple[str, str, ShardState, bool, int]], wanted: tuple[int, int]
) -> None:
    fleet, in_force = a_fleet(shards), in_force_for(wanted)
    ready_before = _ready(fleet)
    take(fleet, plan(fleet, in_force, now_s=200.0), now_s=200.0)
    for name, target in zip(("m", "n"), wanted, strict=True):
        assert _ready(fleet)[name] >= min(target, ready_before[name])


@QUICK
@given(shards=_shards, wanted=_wanted)
def test_an_obedient_fleet_reaches_what_is_wanted_and_rests(
    shards: list[tuple[str, str, ShardState, bool, int]], wanted: tuple[int, int]
) -> None:
    """Agents do at once what they are told: after some passes desired equals actual."""
    fleet, in_force = a_fleet(shards), in_force_for(wanted)
    held: Mapping[str, Endpoint | None] = {}
    new_id = ids()
    now_s = 200.0
    for _ in range(60):
        now_s += 10.0
        for node_id in list(fleet.nodes):
            _obey(fleet, node_id, now_s)
        held = endpoints.desired(fleet, in_force, held, settled=True)
        take(fleet, reconcile(fleet, situation(in_force, held=held, now_s=now_s), new_id))
    assert _ready(fleet) == {"m": wanted[0], "n": wanted[1], "gone": 0}
    assert len(fleet.shards) == sum(wanted)
    assert len(held) == sum(wanted)
    assert plan(fleet, in_force, held=held, now_s=now_s, settling=SETTLED).steps == ()


def _ready(fleet: Fleet) -> dict[str, int]:
    counts = {"m": 0, "n": 0, "gone": 0}
    for shard in fleet.shards.values():
        if shard.state is ShardState.READY and shard.is_wanted:
            counts[shard.spec.model] += 1
    return counts


def _obey(fleet: Fleet, node_id: str, now_s: float) -> None:
    """What an agent does: starting shards become ready, told ones stop, drains end."""
    for shard in list(fleet.shards_of(node_id)):
        ended = str(shard.intent) in ("drain", "stop") or shard.state is ShardState.DRAINING
        if ended and not shard.cleaned:
            status(fleet, node_id, report(shard.spec, ShardState.STOPPED), now_s=now_s)
        elif not shard.state.is_over and not ended:
            status(fleet, node_id, report(shard.spec), now_s=now_s)
