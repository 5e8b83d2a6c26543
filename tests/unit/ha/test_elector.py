"""The elector's shell on a store in memory and virtual time: durations are exact."""

from __future__ import annotations

import asyncio
import json

import pytest

from ha.core.election import LeaderSeen
from ha.elector import NotLeaderError, Role, Transition
from ha.store import Delete, Put
from tests.support.election import KEYS, MARGIN_S, TTL_S, value, world
from tests.support.virtual import LoopClock, run_virtual, until


def test_one_of_three_leads_and_all_are_listed() -> None:
    async def scenario() -> None:
        async with world() as w:
            electors = [w.start(name) for name in "abc"]
            await asyncio.sleep(1)
            leaders = [elector for elector in electors if elector.is_leader()]
            assert len(leaders) == 1
            [leader] = leaders
            assert all(elector.leader == leader.leader for elector in electors)
            assert leader.leader is not None
            assert leader.leader.facts == {"address": f"{leader.identity}:1"}
            document = json.loads(await value(w.memory, KEYS.leader) or b"")
            assert document == {
                "id": leader.identity,
                "term": 1,
                "address": f"{leader.identity}:1",
            }
            assert await value(w.memory, KEYS.term) == b"1"
            candidates = (await w.memory.list(KEYS.candidates, timeout_s=1)).items
            assert [json.loads(item.value)["id"] for item in candidates] == ["a", "b", "c"]
            assert all(item.lease_id for item in candidates)

    run_virtual(scenario())


def test_a_leader_that_dies_is_followed_when_its_lease_runs_out() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.start("a")
            await asyncio.sleep(2)
            b = w.start("b")
            await asyncio.sleep(8.01)
            await w.kill("a")
            died_s = w.now_s()
            leadership = await b.lead()
            assert leadership.term == 2
            assert TTL_S * 5 / 6 - 0.1 <= w.now_s() - died_s <= TTL_S

    run_virtual(scenario())


def test_a_graceful_hand_over_takes_no_time_and_the_old_leader_stands_by() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a")
            first = await a.lead()
            b = w.start("b")
            await asyncio.sleep(1)
            resigned_s = w.now_s()
            await a.resign("maintenance")
            second = await b.lead()
            assert w.now_s() == resigned_s
            assert second.term == 2
            assert first.ended.is_set()
            assert a.role is Role.STANDBY
            assert await value(w.memory, KEYS.candidates + "a") is None
            assert w.heard["a"][-1] == Transition(
                Role.LEADING, Role.STANDBY, 1, "resigned: maintenance"
            )
            await asyncio.sleep(3)
            assert await value(w.memory, KEYS.candidates + "a") is not None, "it stands by again"
            await b.resign("maintenance")
            assert (await a.lead()).term == 3

    run_virtual(scenario())


def test_a_lone_candidate_leads_again_after_holding_back() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a")
            await a.lead()
            await a.resign("cannot start")
            resigned_s = w.now_s()
            assert (await a.lead()).term == 2
            assert 1.0 <= w.now_s() - resigned_s <= 3.0

    run_virtual(scenario())


def test_a_leader_cut_off_freezes_at_the_deadline_of_its_last_renewal() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a")
            leadership = await a.lead()
            await asyncio.sleep(10)
            w.stores["a"].hung = True
            last_sent_s = a._core.deadline_s - TTL_S + MARGIN_S
            await until(lambda: a.role is Role.FROZEN, within_s=TTL_S)
            assert w.now_s() == pytest.approx(last_sent_s + TTL_S - MARGIN_S, abs=0.011)
            assert leadership.frozen
            assert not leadership.is_leader()
            assert not leadership.ended.is_set()
            await until(lambda: w.heard["a"][-1].new is Role.FROZEN, within_s=0.02)

    run_virtual(scenario())


def test_the_deadline_counts_from_sending_however_late_the_answer_comes() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a")
            await a.lead()
            w.stores["a"].answers_after_s = 0.7
            await asyncio.sleep(4.95)  # the last answer came at 4.87, to what was sent at 4.17
            sent_s = w.stores["a"].renewals_sent_s[-1]
            assert a._core.deadline_s == pytest.approx(sent_s + TTL_S - MARGIN_S)

    run_virtual(scenario())


def test_a_frozen_leader_resumes_the_same_term_when_the_store_is_back_in_time() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a")
            leadership = await a.lead()
            lease = w.memory._leases[a._core.lease_id]
            w.stores["a"].down = True
            lease.expires_s += 20  # an etcd that elects a leader gives every lease its TTL again
            await until(lambda: a.role is Role.FROZEN, within_s=TTL_S)
            await asyncio.sleep(5)
            w.stores["a"].down = False
            assert await a.lead() is leadership
            assert (leadership.term, leadership.ended.is_set()) == (1, False)
            roles = [change.new for change in w.heard["a"]]
            assert roles == [Role.LEADING, Role.FROZEN, Role.LEADING]

    run_virtual(scenario())


def test_a_leader_whose_lease_ran_out_stands_by_and_comes_back_with_a_new_one() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a")
            first = await a.lead()
            w.stores["a"].down = True
            await asyncio.sleep(TTL_S + 1)
            b = w.start("b")
            second = await b.lead()
            assert second.term == 2
            w.stores["a"].down = False
            await first.ended.wait()
            await until(lambda: a.leader == b.leader, within_s=2)
            await asyncio.sleep(TTL_S / 6)
            assert await value(w.memory, KEYS.candidates + "a") is not None
            assert a.term == 2, "a standby shows the highest term it has seen"

    run_virtual(scenario())


def test_a_process_that_slept_through_its_lease_knows_it_before_anything_ran() -> None:
    """CLOCK_BOOTTIME went on while the event loop's own time stood still."""

    async def scenario() -> None:
        async with world() as w:
            clock = LoopClock()
            a = w.start("a", clock=clock)
            leadership = await a.lead()
            sent = w.stores["a"].txns_sent
            clock.slept_s += 3 * TTL_S
            assert not a.is_leader()
            assert a.role is Role.FROZEN
            with pytest.raises(NotLeaderError, match="frozen"):
                await leadership.txn([], [Put("/k", b"late")], timeout_s=1)
            assert w.stores["a"].txns_sent == sent, "not even sent"

    run_virtual(scenario())


def test_the_fence_refuses_a_write_that_slips_past_the_deadline() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a")
            old = await a.lead()
            w.stores["a"].down = True
            await asyncio.sleep(TTL_S + 1)
            b = w.start("b")
            new = await b.lead()
            a._core.deadline_s = w.now_s() + 100  # as if the deadline were no guard
            a._core.state = type(a._core.state).LEADING
            w.stores["a"].down = False
            assert old.is_leader()
            with pytest.raises(NotLeaderError, match="not ours"):
                await old.txn([], [Put("/k", b"late")], timeout_s=1)
            assert await value(w.memory, "/k") is None
            assert old.ended.is_set(), "it has learnt from the refusal"
            assert (await new.txn([], [Put("/k", b"new")], timeout_s=1)).succeeded

    run_virtual(scenario())


def test_a_predecessors_delete_that_comes_late_does_not_depose() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a")
            await a.lead()
            b = w.start("b")
            await asyncio.sleep(1)
            await a.resign("hand-over")
            leadership = await b.lead()
            # The watch of b shows the end of a only now, after b's own victory.
            b._feed(LeaderSeen(leadership.create_revision - 1, None))
            assert b.is_leader()
            assert not leadership.ended.is_set()
            b._feed(LeaderSeen(leadership.create_revision + 1, None))
            assert leadership.ended.is_set()

    run_virtual(scenario())


def test_a_campaign_whose_answer_was_lost_is_a_victory_if_the_key_is_ours() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a")
            w.stores["a"].lose_answers, w.stores["a"].aim = 1, KEYS.leader
            w.stores["a"].watch_gate.clear()  # the watch would tell, too
            leadership = await a.lead()
            assert w.stores["a"].lose_answers == 0
            item = await w.memory.get(KEYS.leader, timeout_s=1)
            assert item is not None
            assert leadership.create_revision == item.create_revision
            assert leadership.term == 1
            assert await value(w.memory, KEYS.term) == b"1"

    run_virtual(scenario())


def test_a_campaign_that_arrives_late_is_recognised() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a")
            w.stores["a"].late_txns, w.stores["a"].aim = 1, KEYS.leader
            await asyncio.sleep(0.2)
            assert a.role is Role.STANDBY
            [result] = await w.stores["a"].release()
            assert result.succeeded
            leadership = await a.lead()
            assert leadership.create_revision == result.revision

    run_virtual(scenario())


def test_a_store_that_is_down_at_the_start_is_reported_and_waited_for() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a", down=True)
            await asyncio.sleep(60)
            assert a.problem == "down"
            assert a.role is Role.STANDBY
            w.stores["a"].down = False
            back_s = w.now_s()
            await a.lead()
            assert w.now_s() - back_s <= 2
            await asyncio.sleep(1)
            assert a.problem == ""

    run_virtual(scenario())


def test_a_term_counter_that_is_no_number_keeps_everybody_from_leading() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.memory.txn([], [Put(KEYS.term, b"many")], timeout_s=1)
            a = w.start("a")
            await asyncio.sleep(20)
            assert a.role is Role.STANDBY
            await w.memory.txn([], [Put(KEYS.term, b"41")], timeout_s=1)
            assert (await a.lead()).term == 42

    run_virtual(scenario())


def test_a_leader_key_that_cannot_be_read_still_means_that_somebody_leads() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.memory.txn([], [Put(KEYS.leader, b"\xff")], timeout_s=1)
            a = w.start("a")
            await asyncio.sleep(20)
            assert a.role is Role.STANDBY
            assert a.leader is not None
            assert a.leader.id == ""
            await w.memory.txn([], [Delete(KEYS.leader)], timeout_s=1)
            await a.lead()

    run_virtual(scenario())


def test_terms_go_on_above_the_highest_seen_after_the_counter_was_lost() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a")
            await a.lead()
            await a.raise_term(500)
            await w.memory.txn([], [Delete(KEYS.term), Delete(KEYS.leader)], timeout_s=1)
            await until(lambda: a.role is Role.STANDBY, within_s=1)
            assert (await a.lead()).term == 502

    run_virtual(scenario())


def test_wait_change_wakes_on_another_leader() -> None:
    async def scenario() -> None:
        async with world() as w:
            a = w.start("a")
            await a.lead()
            b = w.start("b")
            await asyncio.sleep(1)
            c = w.start("c")
            await asyncio.sleep(1)
            waiting = asyncio.create_task(c.wait_change())
            await asyncio.sleep(1)
            assert not waiting.done()
            b._core.not_before_s = w.now_s() + 1  # so that c is not always second
            await a.resign("test")
            await asyncio.wait_for(waiting, 1)

    run_virtual(scenario())


def test_what_keeps_anybody_from_leading_is_named_until_it_is_mended() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.memory.txn(
                [], [Put(KEYS.leader, b"by hand"), Put(KEYS.term, b"x")], timeout_s=1
            )
            a = w.start("a")
            await asyncio.sleep(1)
            assert KEYS.leader in a.obstacle
            await w.memory.txn([], [Delete(KEYS.leader)], timeout_s=1)
            await asyncio.sleep(5)
            assert a.obstacle == "/e/term: the term counter is not a number: 'x'"
            await w.memory.txn([], [Put(KEYS.term, b"7")], timeout_s=1)
            assert (await a.lead()).term == 8
            await asyncio.sleep(1)
            assert a.obstacle == ""

    run_virtual(scenario())
