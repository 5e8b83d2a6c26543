"""What agents say changes exactly what they carry, and nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from llmgw.control.core.events import Disconnected, Heard, Opened, Registered, ResultCame
from llmgw.control.core.fleet import Fleet
from llmgw.control.core.plan import Drain, Retire, Start, Stop, apply_step
from llmgw.control.core.values import Intent, NodeState
from llmgw.domain.messages import AgentHeartbeat, CommandResult, FetchProgress, Register
from llmgw.domain.node import EngineInstallation, Gpu, NodeLoad, Storage, Weights
from llmgw.domain.shard import ShardState
from tests.support.fleet import attach, facts, model, report, spec, status

M = model()
S = spec(M)
KEY = ("node-a", "r-1-0")


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(started_at_s=0.0)


def beat(fleet: Fleet, heartbeat: AgentHeartbeat, *, now_s: float = 1.0) -> None:
    fleet.fold(Heard("node-a", heartbeat), now_s)


def node_facts(fleet: Fleet):  # type: ignore[no-untyped-def]  # noqa: ANN201 - short for a test
    known = fleet.nodes["node-a"].facts
    assert known is not None
    return known


class TestHeartbeat:
    """A heartbeat changes only what it carries."""

    def test_changes_only_what_it_carries(self, fleet: Fleet) -> None:
        gpu = Gpu(0, "GPU-1", "H100")
        attach(fleet, "node-a", gpus=(gpu,), storage=(Storage("/", 1, 2),), problems=("hot",))
        before = node_facts(fleet)
        beat(fleet, AgentHeartbeat(1, load=NodeLoad(cpu_percent=5.0)))
        assert node_facts(fleet) == before
        assert fleet.nodes["node-a"].load == NodeLoad(cpu_percent=5.0)
        beat(fleet, AgentHeartbeat(2))
        assert fleet.nodes["node-a"].load == NodeLoad(cpu_percent=5.0)

    def test_an_empty_list_is_none_and_silence_is_silence(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", gpus=(Gpu(0, "GPU-1", "H100"),), weights=(Weights("/w", 1),))
        beat(fleet, AgentHeartbeat(1, gpus=(), weights=None))
        assert node_facts(fleet).gpus == ()
        assert node_facts(fleet).weights == (Weights("/w", 1),)

    def test_a_problem_of_a_node_without_gpus_is_taken(self, fleet: Fleet) -> None:
        attach(fleet, "node-a")
        beat(fleet, AgentHeartbeat(1, problems=("disk is full",)))
        assert node_facts(fleet).problems == ("disk is full",)

    def test_the_same_problem_twice_is_one_and_one_that_is_gone_clears(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", problems=("a", "a"))
        assert node_facts(fleet).problems == ("a",)
        for tick in range(5):
            beat(fleet, AgentHeartbeat(tick, problems=("b", "a", "b")))
        assert node_facts(fleet).problems == ("b", "a")
        beat(fleet, AgentHeartbeat(9, problems=()))
        assert node_facts(fleet).problems == ()

    def test_gpus_go_by_uuid_never_by_position(self, fleet: Fleet) -> None:
        one, two = Gpu(0, "GPU-1", "H100"), Gpu(1, "GPU-2", "H100")
        attach(fleet, "node-a", gpus=(one, two))
        sick = dataclasses.replace(two, index=0, problems=("ECC",))
        beat(fleet, AgentHeartbeat(1, gpus=(sick, dataclasses.replace(one, index=1))))
        by_uuid = {gpu.uuid: gpu.problems for gpu in node_facts(fleet).gpus}
        assert by_uuid == {"GPU-1": (), "GPU-2": ("ECC",)}

    def test_nothing_is_edited_in_place(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", problems=("a",))
        before = fleet.nodes["node-a"]
        beat(fleet, AgentHeartbeat(1, problems=("b",)))
        assert before.facts is not None
        assert before.facts.problems == ("a",)

    def test_of_a_node_that_never_registered_is_nothing(self, fleet: Fleet) -> None:
        beat(fleet, AgentHeartbeat(1, problems=("b",)))
        assert "node-a" not in fleet.nodes


class TestRegistration:
    """Facts are merged, the inventory is a cut, adoption comes first."""

    def test_is_not_open_for_placement_before_adoption(self, fleet: Fleet) -> None:
        registration = attach(fleet, "node-a", report(S), opened=False)
        assert not fleet.nodes["node-a"].open
        assert fleet.nodes["node-a"].state is NodeState.REGISTERING
        assert fleet.shards[KEY].state is ShardState.READY
        fleet.fold(Opened("node-a", registration), 0.0)
        assert fleet.nodes["node-a"].open

    def test_a_new_stream_closes_the_node_until_it_is_adopted_again(self, fleet: Fleet) -> None:
        old = attach(fleet, "node-a")
        attach(fleet, "node-a", opened=False)
        fleet.fold(Opened("node-a", old), 0.0)
        assert not fleet.nodes["node-a"].open

    def test_wipes_nothing_that_it_does_not_carry(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", storage=(Storage("/", 1, 2),), weights=(Weights("/w", 1),))
        attach(fleet, "node-a", memory_total_bytes=None, engines=())
        known = node_facts(fleet)
        assert known.memory_total_bytes == facts().memory_total_bytes
        assert known.storage == (Storage("/", 1, 2),)
        assert known.weights == (Weights("/w", 1),)
        assert known.engines == (EngineInstallation("command"),)

    def test_on_a_live_stream_is_new_facts_and_stays_open(self, fleet: Fleet) -> None:
        registration = attach(fleet, "node-a", report(S), gpus=(Gpu(0, "GPU-1", "H100"),))
        again = Register("node-a", facts(gpus=()), (report(S),))
        fleet.fold(Registered(registration, again), 1.0)
        assert node_facts(fleet).gpus == ()
        assert fleet.nodes["node-a"].open

    def test_its_inventory_is_a_cut(self, fleet: Fleet) -> None:
        """A shard commanded before, and not in the inventory, is gone; so is one once reported."""
        attach(fleet, "node-a", report(S))
        apply_step(fleet, Start("node-a", spec(M, "r-2"), "why"), "message", 0.0)
        attach(fleet, "node-a")
        assert not fleet.shards

    def test_what_was_commanded_under_this_very_registration_stays(self, fleet: Fleet) -> None:
        registration = attach(fleet, "node-a")
        apply_step(fleet, Start("node-a", S, "why"), "message", 0.0)
        fleet.fold(Registered(registration, Register("node-a", facts())), 1.0)
        assert KEY in fleet.shards

    def test_a_drain_sent_on_the_old_stream_is_sent_again(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", report(S))
        apply_step(fleet, Drain(KEY, "surplus"), "message", 0.0)
        attach(fleet, "node-a", report(S))
        assert fleet.shards[KEY].intent is Intent.RETIRE
        assert fleet.shards[KEY].intent_reason == "surplus"

    def test_readiness_counts_from_when_the_agent_says(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", report(S, ready_for_s=40.0), now_s=100.0)
        assert fleet.shards[KEY].ready_since_s == 60.0

    def test_the_end_of_a_replaced_stream_disconnects_nobody(self, fleet: Fleet) -> None:
        old = attach(fleet, "node-a")
        new = attach(fleet, "node-a")
        fleet.fold(Disconnected("node-a", old), 0.0)
        assert fleet.nodes["node-a"].connected
        fleet.fold(Disconnected("node-a", new), 0.0)
        assert not fleet.nodes["node-a"].connected
        assert fleet.nodes["node-a"].state is NodeState.READY


class TestShardStatus:
    """A shard's state, from its own node."""

    def test_counts_only_from_the_node_the_shard_is_placed_on(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", report(S))
        attach(fleet, "node-b")
        notes = status(fleet, "node-b", report(S, ShardState.FAILED))
        assert "refused" in notes[0]
        assert "node-a" in notes[0]
        assert fleet.shards[KEY].state is ShardState.READY
        assert ("node-b", "r-1-0") not in fleet.shards

    def test_a_failure_that_also_carries_progress_is_a_failure(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", report(S, ShardState.STARTING))
        progress = FetchProgress("http://x", 5, 10)
        status(fleet, "node-a", report(S, ShardState.FAILED, reason="no disk"), fetch=progress)
        assert fleet.shards[KEY].state is ShardState.FAILED
        assert fleet.shards[KEY].fetch == progress
        assert fleet.failures["m", S.spec_hash, "node-a"].reason == "no disk"

    def test_progress_is_not_a_transition(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", report(S, ShardState.STARTING))
        status(fleet, "node-a", report(S, ShardState.STARTING), fetch=FetchProgress("x", 1))
        assert fleet.shards[KEY].state is ShardState.STARTING

    def test_a_stopped_shard_is_gone(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", report(S))
        status(fleet, "node-a", report(S, ShardState.STOPPED))
        assert not fleet.shards

    def test_one_failure_counts_once_however_often_it_is_told(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", report(S, ShardState.STARTING))
        for _ in range(3):
            status(fleet, "node-a", report(S, ShardState.FAILED))
        attach(fleet, "node-a", report(S, ShardState.FAILED))
        assert fleet.failures["m", S.spec_hash, "node-a"].count == 1

    def test_an_end_that_was_asked_for_is_no_failure(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", report(S))
        apply_step(fleet, Drain(KEY, "surplus"), "message", 0.0)
        status(fleet, "node-a", report(S, ShardState.FAILED, reason="killed"))
        assert not fleet.failures

    def test_a_cleaned_up_failure_is_remembered(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", report(S, ShardState.FAILED, reason="boom"))
        apply_step(fleet, Stop(KEY, "it failed"), "message", 0.0)
        status(fleet, "node-a", report(S, ShardState.STOPPED))
        assert fleet.shards[KEY].cleaned
        assert fleet.shards[KEY].reason == "boom"


class TestCommandResult:
    """Answers to commands."""

    def test_a_refused_start_is_a_failure_with_its_reason(self, fleet: Fleet) -> None:
        attach(fleet, "node-a")
        apply_step(fleet, Start("node-a", S, "why"), "message", 0.0)
        fleet.fold(ResultCame("node-a", CommandResult("message", accepted=False, reason="no")), 5.0)
        assert fleet.shards[KEY].state is ShardState.FAILED
        assert "no" in fleet.shards[KEY].reason
        assert fleet.failures["m", S.spec_hash, "node-a"].retry_at_s == 6.0

    def test_counts_from_the_node_it_was_sent_to_only(self, fleet: Fleet) -> None:
        attach(fleet, "node-a")
        attach(fleet, "node-b")
        apply_step(fleet, Start("node-a", S, "why"), "message", 0.0)
        fleet.fold(ResultCame("node-b", CommandResult("message", accepted=False)), 0.0)
        assert fleet.shards[KEY].state is ShardState.PENDING

    def test_a_stale_term_is_no_failure_of_the_shard(self, fleet: Fleet) -> None:
        attach(fleet, "node-a")
        apply_step(fleet, Start("node-a", S, "why"), "message", 0.0)
        result = CommandResult("message", accepted=False, stale_term=True, highest_term=9)
        fleet.fold(ResultCame("node-a", result), 0.0)
        assert fleet.shards[KEY].state is ShardState.PENDING

    def test_an_accepted_clean_up_is_confirmed(self, fleet: Fleet) -> None:
        attach(fleet, "node-a", report(S, ShardState.FAILED))
        apply_step(fleet, Stop(KEY, "it failed"), "message", 0.0)
        assert not fleet.shards[KEY].cleaned
        fleet.fold(ResultCame("node-a", CommandResult("message", accepted=True)), 0.0)
        assert fleet.shards[KEY].cleaned


def test_a_copy_is_independent(fleet: Fleet) -> None:
    attach(fleet, "node-a", report(S))
    other = fleet.copy()
    apply_step(other, Retire(KEY, "why"), "", 0.0)
    assert fleet.shards[KEY].intent is Intent.RUN
