"""The checker itself: a right run passes, and each kind of wrong one is seen."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from tests.support.invariants import Record, Run, violations

AGENT = {"boot_s": 0.0, "node_id": "node-1"}


def role(role: str, term: int) -> Record:
    return {"boot_s": 0.0, "event": "role", "role": role, "term": term}


def send(term: int, kind: str = "start_shard") -> Record:
    return {"boot_s": 0.0, "event": "send", "kind": kind, "term": term}


def write(term: int, revision: int) -> Record:
    return {"boot_s": 0.0, "event": "write", "term": term, "revision": revision}


def term(number: int) -> Record:
    return AGENT | {"event": "term", "term": number}


def command(kind: str, shard_id: str, number: int, boot_s: float = 0.0, **more: Any) -> Record:
    facts = {"event": "command", "kind": kind, "shard_id": shard_id, "term": number}
    return AGENT | facts | {"boot_s": boot_s, "accepted": True} | more


def shard(shard_id: str, state: str, boot_s: float = 0.0, pid: int = 7, ticks: int = 1) -> Record:
    facts = {"event": "shard", "shard_id": shard_id, "state": state, "pid": pid}
    return AGENT | facts | {"boot_s": boot_s, "process_start_ticks": ticks}


def request(outcome: str, code: int) -> Record:
    return {"event": "request", "model": "m", "code": code, "outcome": outcome}


def leader(identity: str, number: int) -> bytes:
    return json.dumps({"id": identity, "term": number}).encode()


RIGHT = Run(
    planes={
        "cp-1": [
            role("leading", 1),
            send(1),
            write(1, 12),
            role("frozen", 1),
            send(1, "heartbeat"),
            role("leading", 1),
            send(1),
            role("standby", 1),
        ],
        "cp-2": [role("leading", 2), write(2, 25), send(2)],
    },
    agents={
        "node-1": [
            term(1),
            command("StartShard", "m-aa-0", 1),
            shard("m-aa-0", "ready", 1.0),
            term(2),
            command("StopShard", "m-aa-0", 1, 1.5, accepted=False),
            shard("m-bb-0", "ready", 2.0, pid=8),
            command("DrainShard", "m-aa-0", 2, 3.0),
            shard("m-aa-0", "draining", 3.0),
            shard("m-bb-0", "ready", 4.0, pid=8),
        ]
    },
    routers={"router": [request("ok", 200), request("client_left", 499)]},
    leaders=[(10, leader("cp-1", 1)), (20, None), (21, leader("cp-2", 2))],
    wanted={"m": 1},
)


def test_a_right_run_has_no_violation() -> None:
    assert violations(RIGHT) == []


def planes(name: str, *more: Record) -> Run:
    return dataclasses.replace(RIGHT, planes={**RIGHT.planes, name: [*RIGHT.planes[name], *more]})


def agents(*more: Record, name: str = "node-1") -> Run:
    before = RIGHT.agents.get(name, [])
    return dataclasses.replace(RIGHT, agents={**RIGHT.agents, name: [*before, *more]})


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (planes("cp-1", role("leading", 2)), "term 2 was led by"),
        (planes("cp-2", role("leading", 1)), "cp-2 led term 1 after 2"),
        (planes("cp-1", send(1)), "cp-1 sent start_shard while standby"),
        (planes("cp-2", role("frozen", 2), send(2)), "cp-2 sent start_shard while frozen"),
        (planes("cp-2", send(1)), "cp-2 sent start_shard of 1 in 2"),
        (planes("cp-1", write(1, 22)), "cp-1 wrote revision 22 in term 1"),
        (planes("cp-1", write(1, 20)), "which None led"),
        (planes("cp-1", write(1, 9)), "which None led"),
        (agents(term(2)), "node-1 accepted term 2 after 2"),
        (agents(command("StartShard", "m-cc-0", 1)), "node-1 obeyed term 1 after 2"),
        (agents(shard("m-bb-0", "ready", 5.0, pid=9)), "shard m-bb-0 ran as"),
        (agents(shard("m-bb-0", "ready", 5.0, pid=8, ticks=2)), "shard m-bb-0 ran as"),
        (agents(shard("m-bb-0", "ready", 5.0, pid=8), name="node-2"), "shard m-bb-0 ran as"),
        (agents(command("StopShard", "m-bb-0", 2, 5.0)), "m-bb-0 was stopped with 0 others"),
        (
            dataclasses.replace(RIGHT, wanted={"m": 2}),
            "m-aa-0 was stopped with 1 others",
        ),
        (
            dataclasses.replace(RIGHT, routers={"r": [request("model_not_ready", 503)]}),
            "r: a request to m ended with 503 model_not_ready",
        ),
        (
            dataclasses.replace(RIGHT, leaders=[*RIGHT.leaders, (30, leader("cp-1", 2))]),
            "revision 30: a leader key of term 2 after 2",
        ),
    ],
)
def test_each_wrong_run_is_seen(run: Run, said: str) -> None:
    assert any(said in violation for violation in violations(run)), violations(run)


def test_a_model_whose_entry_changed_may_be_stopped() -> None:
    run = agents(command("StopShard", "m-bb-0", 2, 5.0))
    assert violations(dataclasses.replace(run, wanted={})) == []
