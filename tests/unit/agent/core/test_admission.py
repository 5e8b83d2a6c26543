"""Terms and idempotence: what an agent takes, what it refuses, what it does only once."""

from __future__ import annotations

import pytest

from llmgw.agent.core.admission import Action, Held, decide, stale_reason
from llmgw.domain.messages import DrainShard, StartShard, StopShard
from llmgw.domain.shard import ProfileSpec, ShardSpec, ShardState

S = ShardState
SPEC = ShardSpec("r1", "s1", "m", ProfileSpec("p", "command"), "hash", 20_000)
START = StartShard(SPEC, "wanted")
STOP = StopShard("r1", "s1", "surplus")
DRAIN = DrainShard("r1", "s1", "rolled")


def held(state: ShardState, replica_id: str = "r1") -> dict[str, Held]:
    return {"s1": Held(replica_id, state)}


def test_a_term_below_the_highest_is_refused_and_the_highest_is_named() -> None:
    reason = stale_reason(6, 7)
    assert reason is not None
    assert "term 6" in reason
    assert "7" in reason


@pytest.mark.parametrize("term", [7, 8])
def test_the_highest_term_and_those_above_are_taken(term: int) -> None:
    assert stale_reason(term, 7) is None


def test_a_new_shard_is_started() -> None:
    assert decide(START, {}).action is Action.START


@pytest.mark.parametrize("state", [S.PENDING, S.STARTING, S.LOADING, S.READY])
def test_starting_a_held_shard_is_accepted_and_does_nothing(state: ShardState) -> None:
    decision = decide(START, held(state))
    assert decision.action is Action.NOTHING
    assert decision.accepted


@pytest.mark.parametrize("state", [S.FAILED, S.STOPPED])
def test_starting_a_shard_that_is_over_starts_it_anew(state: ShardState) -> None:
    assert decide(START, held(state)).action is Action.START


def test_starting_a_shard_that_is_being_stopped_is_refused_until_it_is_gone() -> None:
    decision = decide(START, held(S.DRAINING))
    assert not decision.accepted
    assert decision.reason == "shard s1 is being stopped"


@pytest.mark.parametrize("command", [STOP, DRAIN])
def test_ending_an_unknown_shard_is_accepted(command: StopShard | DrainShard) -> None:
    for nothing in ({}, held(S.STOPPED)):
        decision = decide(command, nothing)
        assert decision.action is Action.NOTHING
        assert decision.accepted


@pytest.mark.parametrize("state", [S.PENDING, S.STARTING, S.LOADING, S.READY, S.FAILED])
def test_a_held_shard_is_stopped(state: ShardState) -> None:
    assert decide(STOP, held(state)).action is Action.STOP


def test_only_a_ready_shard_is_drained_others_have_no_requests() -> None:
    assert decide(DRAIN, held(S.READY)).action is Action.DRAIN
    for state in (S.PENDING, S.STARTING, S.LOADING, S.FAILED):
        assert decide(DRAIN, held(state)).action is Action.STOP


def test_a_second_drain_does_nothing_and_a_stop_cuts_the_first_short() -> None:
    assert decide(DRAIN, held(S.DRAINING)).action is Action.NOTHING
    assert decide(STOP, held(S.DRAINING)).action is Action.STOP


@pytest.mark.parametrize("command", [START, STOP, DRAIN])
def test_a_shard_id_of_another_replica_is_refused(
    command: StartShard | StopShard | DrainShard,
) -> None:
    decision = decide(command, held(S.READY, replica_id="r2"))
    assert not decision.accepted
    assert "belongs to replica r2" in decision.reason


def test_the_reason_of_a_stop_is_the_leaders() -> None:
    assert decide(STOP, held(S.READY)).reason == "surplus"
