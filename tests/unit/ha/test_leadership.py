"""One term of leadership as its holder uses it: fenced writes, a raised term, the end."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from ha.elector import TERM_JUMP_MAX, NotLeaderError, Role, Transition
from ha.store import Delete, ModRevisionIs, Put, RejectedError, UnavailableError
from tests.support.election import KEYS, TTL_S, World, value, world
from tests.support.virtual import run_virtual, until

if TYPE_CHECKING:
    from ha.elector import Elector, Leadership


async def _leading(w: World) -> tuple[Elector, Leadership]:
    elector = w.start("a")
    return elector, await elector.lead()


def test_a_write_tells_apart_a_broken_fence_and_a_compare_that_does_not_hold() -> None:
    async def scenario() -> None:
        async with world() as w:
            a, leadership = await _leading(w)
            write = Put("/k", b"1")
            result = await leadership.txn([ModRevisionIs("/k", 99)], [write], timeout_s=1)
            assert not result.succeeded
            assert a.is_leader()
            w.stores["a"].watch_gate.clear()  # the watch does not tell
            await w.memory.txn([], [Delete(KEYS.leader)], timeout_s=1)
            with pytest.raises(NotLeaderError):
                await leadership.txn([ModRevisionIs("/k", 0)], [write], timeout_s=1)
            assert leadership.ended.is_set()
            assert a.role is Role.STANDBY

    run_virtual(scenario())


def test_a_write_of_unknown_outcome_says_so() -> None:
    async def scenario() -> None:
        async with world() as w:
            _, leadership = await _leading(w)
            w.stores["a"].lose_answers = 1
            with pytest.raises(UnavailableError) as caught:
                await leadership.txn([], [Put("/k", b"1")], timeout_s=1)
            assert caught.value.maybe_applied

    run_virtual(scenario())


def test_a_write_does_not_outlast_the_lease() -> None:
    async def scenario() -> None:
        async with world() as w:
            a, leadership = await _leading(w)
            w.stores["a"].hung = True
            deadline_s = a._core.deadline_s
            with pytest.raises(UnavailableError):
                await leadership.txn([], [Put("/k", b"1")], timeout_s=60)
            assert w.now_s() <= deadline_s

    run_virtual(scenario())


def test_raising_the_term_keeps_the_leadership_and_its_fence() -> None:
    async def scenario() -> None:
        async with world() as w:
            a, leadership = await _leading(w)
            assert await a.raise_term(above=700) == 701
            assert (leadership.term, a.term) == (701, 701)
            assert await value(w.memory, KEYS.term) == b"701"
            assert json.loads(await value(w.memory, KEYS.leader) or b"")["term"] == 701
            assert await a.raise_term(above=3) == 701, "it is above that already"
            assert (await leadership.txn([], [Put("/k", b"1")], timeout_s=1)).succeeded
            await asyncio.sleep(10)
            assert await a.lead() is leadership
            assert w.heard["a"][-1] == Transition(
                Role.LEADING, Role.LEADING, 701, "term raised from 1"
            )
            with pytest.raises(RejectedError, match="more than"):
                await a.raise_term(above=702 + TERM_JUMP_MAX)

    run_virtual(scenario())


def test_a_raise_whose_answer_was_lost_shows_in_the_key() -> None:
    async def scenario() -> None:
        async with world() as w:
            a, leadership = await _leading(w)
            w.stores["a"].lose_answers = 1
            with pytest.raises(UnavailableError):
                await a.raise_term(above=700)
            await until(lambda: leadership.term == 701, within_s=1)
            assert await a.lead() is leadership

    run_virtual(scenario())


def test_a_standby_may_not_raise_the_term() -> None:
    async def scenario() -> None:
        async with world() as w:
            await _leading(w)
            b = w.start("b")
            await asyncio.sleep(1)
            with pytest.raises(NotLeaderError):
                await b.raise_term(above=7)

    run_virtual(scenario())


def test_resigning_ends_the_term_even_if_the_store_is_down() -> None:
    async def scenario() -> None:
        async with world() as w:
            a, leadership = await _leading(w)
            w.stores["a"].down = True
            await a.resign("shutting down")
            assert leadership.ended.is_set()
            with pytest.raises(NotLeaderError, match="over"):
                await leadership.txn([], [Put("/k", b"1")], timeout_s=1)
            await asyncio.sleep(TTL_S)
            assert await value(w.memory, KEYS.leader) is None, "the lease ran out by itself"

    run_virtual(scenario())
