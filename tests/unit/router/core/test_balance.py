"""Fewest outstanding by weight, within the best priority in service; ties take turns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router.core.balance import choose


@dataclass(frozen=True, slots=True)
class Candidate:
    """An endpoint."""

    replica_id: str
    priority: int
    weight: int
    outstanding: int
    in_service: bool


A = Candidate("a", priority=0, weight=1, outstanding=0, in_service=True)
B = replace(A, replica_id="b")
C = replace(A, replica_id="c")

candidates = st.lists(
    st.builds(
        Candidate,
        replica_id=st.uuids().map(str),
        priority=st.integers(0, 2),
        weight=st.integers(0, 5),
        outstanding=st.integers(0, 20),
        in_service=st.booleans(),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(candidates, st.integers(0, 1_000))
def test_the_choice_is_the_lightest_of_the_best(listed: list[Candidate], turn: int) -> None:
    chosen = choose(listed, turn)
    willing = [candidate for candidate in listed if candidate.weight > 0]
    if not willing:
        assert chosen is None
        return
    assert chosen in willing
    in_service = [candidate for candidate in willing if candidate.in_service] or willing
    assert chosen in in_service
    assert chosen.priority == min(candidate.priority for candidate in in_service)
    rivals = [one for one in in_service if one.priority == chosen.priority]
    assert _load(chosen) == min(map(_load, rivals))


def test_nothing_to_choose_from() -> None:
    assert choose([], 0) is None
    assert choose([replace(A, weight=0)], 0) is None


def test_equal_ones_take_turns_also_when_one_comes_and_goes() -> None:
    listed = [A, B, C]
    counts: Counter[str] = Counter()
    for turn in range(300):
        chosen = choose(listed if turn % 10 else [A, B, C, replace(A, replica_id="d")], turn)
        assert chosen is not None
        counts[chosen.replica_id] += 1
    assert max(counts[name] for name in "abc") - min(counts[name] for name in "abc") <= 30


@pytest.mark.parametrize(("weight", "share"), [(1, 50), (3, 75), (4, 80)])
def test_shares_follow_weights(weight: int, share: int) -> None:
    loads = {"a": 0, "b": 0}
    for turn in range(100):
        chosen = choose(
            [replace(A, weight=weight, outstanding=loads["a"]), replace(B, outstanding=loads["b"])],
            turn,
        )
        assert chosen is not None
        loads[chosen.replica_id] += 1
    assert abs(loads["a"] - share) <= 1


def test_a_worse_priority_serves_only_when_no_better_is_in_service() -> None:
    spare = replace(B, priority=1)
    assert choose([replace(A, outstanding=99), spare], 0) == replace(A, outstanding=99)
    assert choose([replace(A, in_service=False), spare], 0) == spare


def test_when_all_are_ejected_the_best_is_tried_all_the_same() -> None:
    out = replace(A, in_service=False)
    assert choose([out, replace(B, in_service=False, priority=1)], 0) == out


def _load(candidate: Candidate) -> Fraction:
    return Fraction(candidate.outstanding + 1, candidate.weight)
