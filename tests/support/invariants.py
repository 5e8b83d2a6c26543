"""What must hold whatever was killed: checked offline from journals and from etcd's own history.

Pure functions: records and changes in, violations out, each a sentence that names the place. The
records are those of `--journal`, in the order one process (or one name, over restarts) wrote them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Record = dict[str, Any]
_OVER = {"draining", "stopped", "failed"}


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that was recorded in one run.

    Attributes:
        planes: journals of control planes, by id.
        agents: journals of agents, by node id.
        routers: journals of routers, by name.
        leaders: the leader key's values in etcd's history: (revision, value, None when deleted).
        wanted: replicas of each model whose catalog entry never changed during the run.
    """

    planes: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    agents: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    routers: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    leaders: Sequence[tuple[int, bytes | None]] = ()
    wanted: Mapping[str, int] = field(default_factory=dict)


def violations(run: Run) -> list[str]:
    """Everything that is wrong with a run; empty when it was right."""
    return [
        *one_leader_a_term(run.planes),
        *terms_rise_in_etcd(run.leaders),
        *nothing_leaves_without_leading(run.planes),
        *writes_fall_into_their_term(run.planes, run.leaders),
        *agents_obey_no_lower_term(run.agents),
        *one_process_a_shard(run.agents),
        *nothing_stops_without_replacement(run.agents, run.wanted),
        *no_request_fails(run.routers),
    ]


def one_leader_a_term(planes: Mapping[str, Iterable[Record]]) -> list[str]:
    """A term is led by one control plane, whose own terms only rise."""
    owners: dict[int, set[str]] = defaultdict(set)
    found = []
    for name, records in planes.items():
        highest = 0
        for record in records:
            if record["event"] == "role" and record["role"] == "leading":
                owners[record["term"]].add(name)
                if record["term"] < highest:
                    found.append(f"{name} led term {record['term']} after {highest}")
                highest = record["term"]
    shared = ((term, names) for term, names in sorted(owners.items()) if len(names) > 1)
    return found + [f"term {term} was led by {sorted(names)}" for term, names in shared]


def terms_rise_in_etcd(leaders: Iterable[tuple[int, bytes | None]]) -> list[str]:
    """Each leader key has a higher term than the one before it."""
    found, highest = [], 0
    for revision, value in leaders:
        if value is not None:
            term = int(json.loads(value)["term"])
            if term <= highest:
                found.append(f"revision {revision}: a leader key of term {term} after {highest}")
            highest = max(highest, term)
    return found


def nothing_leaves_without_leading(planes: Mapping[str, Iterable[Record]]) -> list[str]:
    """A control plane that is frozen or stands by commands nobody."""
    found = []
    for name, records in planes.items():
        role, term = "standby", 0
        for record in records:
            if record["event"] == "role":
                role, term = record["role"], record["term"]
            elif record["event"] == "send" and record["kind"] != "heartbeat":
                if role != "leading":
                    found.append(f"{name} sent {record['kind']} while {role}")
                elif record["term"] != term:
                    found.append(f"{name} sent {record['kind']} of {record['term']} in {term}")
    return found


def writes_fall_into_their_term(
    planes: Mapping[str, Iterable[Record]], leaders: Sequence[tuple[int, bytes | None]]
) -> list[str]:
    """At the revision of each write, the leader key in etcd was the writer's own."""
    found = []
    for name, records in planes.items():
        for record in records:
            if record["event"] == "write":
                holder = _holder(leaders, record["revision"])
                if holder != (name, record["term"]):
                    found.append(
                        f"{name} wrote revision {record['revision']} in term {record['term']}, "
                        f"which {holder} led"
                    )
    return found


def _holder(leaders: Sequence[tuple[int, bytes | None]], revision: int) -> tuple[str, int] | None:
    value = next((value for at, value in reversed(leaders) if at <= revision), None)
    if value is None:
        return None
    document = json.loads(value)
    return document["id"], document["term"]


def agents_obey_no_lower_term(agents: Mapping[str, Iterable[Record]]) -> list[str]:
    """An agent's terms rise, and it takes commands of the highest one only."""
    found = []
    for name, records in agents.items():
        highest = 0
        for record in records:
            if record["event"] == "term":
                if record["term"] <= highest:
                    found.append(f"{name} accepted term {record['term']} after {highest}")
                highest = max(highest, record["term"])
            elif record["event"] == "command" and record["accepted"] and record["term"] != highest:
                found.append(f"{name} obeyed term {record['term']} after {highest}")
    return found


def one_process_a_shard(agents: Mapping[str, Iterable[Record]]) -> list[str]:
    """A shard has one node and one process, whoever looks after it."""
    seen: dict[str, tuple[str, int, int]] = {}
    found = []
    for name, records in agents.items():
        for record in records:
            if record["event"] == "shard" and record["pid"]:
                process = (name, record["pid"], record["process_start_ticks"])
                if seen.setdefault(record["shard_id"], process) != process:
                    known = seen[record["shard_id"]]
                    found.append(f"shard {record['shard_id']} ran as {known} and as {process}")
    return found


def nothing_stops_without_replacement(
    agents: Mapping[str, Iterable[Record]], wanted: Mapping[str, int]
) -> list[str]:
    """A ready shard is drained only while enough others of its model are ready.

    Shard ids begin with the model's name. A shard that dies by itself is not stopped by anybody.
    """
    ready: dict[str, set[str]] = defaultdict(set)
    found = []
    merged = [record for records in agents.values() for record in records]
    for record in sorted(merged, key=lambda record: float(record["boot_s"])):
        if record["event"] == "command" and record["accepted"]:
            model = _model(record["shard_id"], wanted)
            others = ready[model] - {record["shard_id"]}
            stops = bool(model) and record["kind"] in {"DrainShard", "StopShard"}
            if stops and record["shard_id"] in ready[model] and len(others) < wanted[model]:
                found.append(f"{record['shard_id']} was stopped with {len(others)} others ready")
        elif record["event"] == "shard":
            model = _model(record["shard_id"], wanted)
            if record["state"] == "ready":
                ready[model].add(record["shard_id"])
            elif record["state"] in _OVER:
                ready[model].discard(record["shard_id"])
    return found


def _model(shard_id: str, wanted: Mapping[str, int]) -> str:
    """The model of a shard, or "" when its catalog entry is no matter of this check."""
    name = shard_id.rsplit("-", 2)[0]
    return name if name in wanted else ""


def no_request_fails(routers: Mapping[str, Iterable[Record]]) -> list[str]:
    """Every request was answered, unless its client left."""
    return [
        f"{name}: a request to {record['model']} ended with {record['code']} {record['outcome']}"
        for name, records in routers.items()
        for record in records
        if record["event"] == "request" and record["outcome"] not in {"ok", "client_left"}
    ]
