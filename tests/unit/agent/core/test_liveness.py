"""When the leader at the other end counts as gone."""

from __future__ import annotations

from llmgw.agent.core.liveness import ACK_TIMEOUT_S, LeaderLife


def test_before_the_ack_patience_is_the_ack_timeout() -> None:
    life = LeaderLife(now_s=100.0)
    assert life.left_s(100.0) == ACK_TIMEOUT_S


def test_three_missed_heartbeats_end_it() -> None:
    life = LeaderLife(now_s=0.0)
    life.ack(10.0, heartbeat_interval_s=4.0)
    assert life.left_s(21.9) > 0
    assert life.left_s(22.0) <= 0


def test_a_heartbeat_renews_patience() -> None:
    life = LeaderLife(now_s=0.0)
    life.ack(0.0, heartbeat_interval_s=1.0)
    life.heartbeat(2.5, loop_tick=1)
    assert life.left_s(5.0) == 0.5


def test_a_heartbeat_whose_tick_stands_still_is_no_life() -> None:
    life = LeaderLife(now_s=0.0)
    life.ack(0.0, heartbeat_interval_s=1.0)
    life.heartbeat(1.0, loop_tick=7)
    life.heartbeat(3.9, loop_tick=7)
    assert life.left_s(4.0) <= 0


def test_a_command_is_life_too() -> None:
    life = LeaderLife(now_s=0.0)
    life.ack(0.0, heartbeat_interval_s=1.0)
    life.command(2.0)
    assert life.left_s(2.0) == 3.0
