"""The table of a shard's states: what it allows, and how it tells what it does not."""

from __future__ import annotations

import itertools

import pytest

from llmgw.agent.core.supervisor import TRANSITIONS, IllegalMoveError, ShardLife
from llmgw.domain.shard import ShardState

S = ShardState

LEGAL = {
    (S.PENDING, S.STARTING),
    (S.PENDING, S.STOPPED),
    (S.PENDING, S.FAILED),
    (S.STARTING, S.LOADING),
    (S.STARTING, S.READY),
    (S.STARTING, S.DRAINING),
    (S.STARTING, S.FAILED),
    (S.LOADING, S.READY),
    (S.LOADING, S.DRAINING),
    (S.LOADING, S.FAILED),
    (S.READY, S.DRAINING),
    (S.READY, S.FAILED),
    (S.DRAINING, S.STOPPED),
    (S.DRAINING, S.FAILED),
    (S.FAILED, S.STOPPED),
}


def test_the_table_covers_every_state() -> None:
    assert set(TRANSITIONS) == set(ShardState)


@pytest.mark.parametrize(("before", "after"), sorted(itertools.product(ShardState, ShardState)))
def test_exactly_the_listed_moves_are_legal(before: ShardState, after: ShardState) -> None:
    life = ShardLife("s1", before)
    if (before, after) in LEGAL:
        life.move(after, "because")
        assert (life.state, life.reason) == (after, "because")
    else:
        with pytest.raises(IllegalMoveError):
            life.move(after, "because")
        assert life.state is before


def test_a_running_shard_never_becomes_stopped_without_having_been_draining() -> None:
    """STOPPED says that no process is left; DRAINING is where processes are ended."""
    may_have_processes = {S.STARTING, S.LOADING, S.READY}
    assert not any(S.STOPPED in TRANSITIONS[state] for state in may_have_processes)


def test_nothing_comes_after_stopped() -> None:
    assert TRANSITIONS[S.STOPPED] == frozenset()


def test_an_illegal_move_tells_the_whole_story() -> None:
    life = ShardLife("replica-7/0")
    life.move(S.STARTING, "running python")
    life.move(S.DRAINING, "surplus")
    with pytest.raises(IllegalMoveError) as raised:
        life.move(S.READY, "answers")
    message = str(raised.value)
    assert "replica-7/0 cannot become ready (answers)" in message
    assert "pending (accepted) -> starting (running python) -> draining (surplus)" in message
