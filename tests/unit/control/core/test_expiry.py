"""Suspect, then lost, each exactly one period later, and only under the present leader."""

from __future__ import annotations

import pytest

from llmgw.control.core.events import Disconnected, Heard, NodeKnown, Ticked, TimersRestarted
from llmgw.control.core.expiry import Limits, self_suspicion
from llmgw.control.core.fleet import Fleet
from llmgw.control.core.values import NodeState
from llmgw.domain.messages import AgentHeartbeat
from tests.support.fleet import attach

LIMITS = Limits()


def tick(fleet: Fleet, now_s: float) -> dict[str, NodeState]:
    fleet.fold(Ticked(LIMITS), now_s)
    return {node.node_id: node.state for node in fleet.nodes.values()}


def test_a_silent_node_is_suspect_then_lost_each_one_period_later() -> None:
    fleet = Fleet(0.0)
    attach(fleet, "node-a", now_s=100.0)
    assert tick(fleet, 114.9)["node-a"] is NodeState.READY
    assert tick(fleet, 115.0)["node-a"] is NodeState.SUSPECT
    assert tick(fleet, 189.9)["node-a"] is NodeState.SUSPECT
    assert tick(fleet, 190.0)["node-a"] is NodeState.LOST


def test_a_new_leader_gives_every_node_a_full_period() -> None:
    """After a gap without leaders no node is expired: its timer starts with the term."""
    fleet = Fleet(started_at_s=5_000.0)
    fleet.fold(NodeKnown("node-a"), 5_000.0)
    assert tick(fleet, 5_014.9)["node-a"] is NodeState.UNKNOWN
    assert tick(fleet, 5_015.0)["node-a"] is NodeState.SUSPECT
    assert tick(fleet, 5_090.0)["node-a"] is NodeState.LOST


def test_timers_restart_on_thaw() -> None:
    fleet = Fleet(0.0)
    attach(fleet, "node-a")
    fleet.fold(TimersRestarted(), 80.0)
    assert tick(fleet, 94.9)["node-a"] is NodeState.READY
    assert tick(fleet, 95.0)["node-a"] is NodeState.SUSPECT


def test_a_closed_stream_does_not_make_a_node_lost() -> None:
    fleet = Fleet(0.0)
    registration = attach(fleet, "node-a")
    fleet.fold(Disconnected("node-a", registration), 1.0)
    assert tick(fleet, 14.0)["node-a"] is NodeState.READY


def test_any_word_from_a_node_restarts_its_timer() -> None:
    fleet = Fleet(0.0)
    attach(fleet, "node-a")
    tick(fleet, 20.0)
    fleet.fold(Heard("node-a", AgentHeartbeat(1)), 21.0)
    assert tick(fleet, 35.9)["node-a"] is NodeState.READY


def test_a_lost_node_stays_lost_until_it_is_heard() -> None:
    fleet = Fleet(0.0)
    attach(fleet, "node-a")
    tick(fleet, 90.0)
    fleet.fold(TimersRestarted(), 91.0)
    assert tick(fleet, 92.0)["node-a"] is NodeState.LOST
    attach(fleet, "node-a", now_s=93.0)
    assert tick(fleet, 93.0)["node-a"] is NodeState.READY


@pytest.mark.parametrize(
    ("silent", "speaking", "lost"),
    [(1, 0, True), (2, 0, True), (3, 0, False), (3, 7, True), (4, 6, False), (3, 6, False)],
)
def test_many_nodes_silent_together_are_not_lost(silent: int, speaking: int, lost: bool) -> None:
    fleet = Fleet(0.0)
    for number in range(silent):
        attach(fleet, f"silent-{number}")
    for number in range(speaking):
        attach(fleet, f"speaking-{number}", now_s=89.0)
    states = tick(fleet, 90.0)
    assert states["silent-0"] is (NodeState.LOST if lost else NodeState.SUSPECT)
    assert bool(self_suspicion(fleet.nodes.values(), 90.0, LIMITS)) is not lost


def test_self_suspicion_ends_when_enough_return() -> None:
    fleet = Fleet(0.0)
    for number in range(4):
        attach(fleet, f"node-{number}")
    assert NodeState.LOST not in tick(fleet, 100.0).values()
    for number in range(3):
        attach(fleet, f"node-{number}", now_s=101.0)
    assert tick(fleet, 102.0)["node-3"] is NodeState.LOST


def test_nodes_lost_one_by_one_do_not_add_up() -> None:
    """Three of nine machines that died over months must not stop the fourth's replacement."""
    fleet = Fleet(0.0)
    for number in range(9):
        attach(fleet, f"node-{number}")
    now_s = 0.0
    for dead in range(4):
        now_s += 100.0
        for number in range(dead + 1, 9):
            attach(fleet, f"node-{number}", now_s=now_s)
        assert tick(fleet, now_s)[f"node-{dead}"] is NodeState.LOST
