"""Shards on disk: what is written comes back, and what cannot be read is said, not guessed."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from llmgw.agent.errors import RecordError, StateDirError
from llmgw.agent.processes import Identity
from llmgw.agent.records import Record, Records, decode, encode
from llmgw.domain.shard import ProfileSpec, ShardSpec, ShardState

if TYPE_CHECKING:
    from pathlib import Path

SPEC = ShardSpec(
    replica_id="org/m:q4-1",
    shard_id="org/m:q4-1/0",
    model="org/m:q4",
    profile=ProfileSpec(
        "cpu", "command", args=("run", "{port}"), env={"A": "b"}, labels={"x": "y"}, memory_mb=5
    ),
    spec_hash="abc",
    http_port=20_001,
    gpu_uuids=("GPU-1",),
)
LAUNCH = "owner:1"
RECORD = Record(
    spec=SPEC,
    launch_token=LAUNCH,
    output="/logs/1.log",
    state=ShardState.READY,
    reason="answers",
    identity=Identity("boot", 17, 123, 17, "owner:1"),
    started_s=1.5,
    ready_s=2.5,
)


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        Record(spec=SPEC, launch_token=LAUNCH, output="/logs/1.log"),
        dataclasses.replace(
            RECORD, state=ShardState.FAILED, exit_code=-9, last_output=("a", "\ufffd", "")
        ),
    ],
)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    assert decode(encode(record)) == record


def test_a_record_is_versioned_json() -> None:
    assert json.loads(encode(RECORD))["version"] == 1


def test_fields_of_a_newer_agent_are_ignored() -> None:
    document = json.loads(encode(RECORD))
    document["new"] = 1
    document["spec"]["new"] = "x"
    assert decode(json.dumps(document).encode()) == RECORD


def _broken(change: Any) -> bytes:
    document = json.loads(encode(RECORD))
    change(document)
    return json.dumps(document).encode()


def _broken_identity(field: str, value: object) -> bytes:
    return _broken(lambda document: document["identity"].update({field: value}))


_NO_PROCESS: dict[str, list[object]] = {
    "pid": ["x", None, [], 1.5, -1, 10**30],
    "process_group": ["x", 1.5, -1],
    "start_ticks": ["x", 1.5, -1],
    "boot_id": [None, []],
    "launch_token": [None, {}],
}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        encode(RECORD)[:-20],
        _broken(lambda d: d.update(version=99)),
        _broken(lambda d: d.update(spec=7)),
        _broken(lambda d: d["spec"].pop("profile")),
        _broken(lambda d: d.update(state="happy")),
        _broken(lambda d: d.update(identity={"pid": 1})),
        _broken(lambda d: d.pop("launch_token")),
        b"[" * 100_000,
        _broken(lambda d: d.update(state="stopped")),
        _broken(lambda d: d.update(exit_code="x")),
        _broken(lambda d: d.update(last_output=[1])),
        _broken(lambda d: d.update(reason="\ud800")),
        _broken(lambda d: d.update(spec="\ud800")),
        *(_broken_identity(f, value) for f, values in _NO_PROCESS.items() for value in values),
    ],
)
def test_what_cannot_be_read_raises_one_kind_of_error(content: bytes) -> None:
    with pytest.raises(RecordError):
        decode(content)


async def test_a_saved_record_is_synced_and_loaded_by_a_later_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records(tmp_path)
    synced: list[int] = []
    sync = os.fsync

    def watch(descriptor: int) -> None:
        synced.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    await records.save(RECORD)
    records.close()
    assert synced
    assert Records(tmp_path).load() == ([RECORD], [])


async def test_a_removed_record_is_gone_and_removing_twice_is_fine(tmp_path: Path) -> None:
    records = Records(tmp_path)
    await records.save(RECORD)
    await records.remove(SPEC.shard_id)
    await records.remove(SPEC.shard_id)
    assert records.load() == ([], [])
    records.close()


async def test_one_unreadable_record_does_not_hide_the_others(tmp_path: Path) -> None:
    records = Records(tmp_path)
    await records.save(RECORD)
    (tmp_path / "shards" / "zzz.json").write_bytes(b"{")
    found, problems = records.load()
    records.close()
    assert found == [RECORD]
    assert [str(problem)[:31] for problem in problems] == ["record zzz.json cannot be read:"]


@pytest.mark.parametrize(
    "shard_id", ["..", "../../etc/passwd", "a b", "m%2Fx", "x" * 300, "", ".json", "org/m:q4/0"]
)
async def test_any_shard_id_has_a_file_of_its_own_inside_the_folder(
    tmp_path: Path, shard_id: str
) -> None:
    records = Records(tmp_path)
    spec = dataclasses.replace(SPEC, shard_id=shard_id)
    other = dataclasses.replace(SPEC, shard_id=shard_id + "x")
    for item in (spec, other):
        record = records.new(item)
        assert record.output.startswith(f"{tmp_path}/logs/")
        assert record.output.count("/") == f"{tmp_path}/logs/".count("/")
        await records.save(record)
    assert {record.spec.shard_id for record in records.load()[0]} == {shard_id, shard_id + "x"}
    assert len(list((tmp_path / "shards").iterdir())) == 2
    records.close()


def test_every_launch_has_a_token_and_an_output_of_its_own(tmp_path: Path) -> None:
    records = Records(tmp_path)
    first, second = records.new(SPEC), records.new(SPEC)
    assert first.launch_token != second.launch_token
    assert first.output != second.output


def test_tokens_tell_state_directories_apart(tmp_path: Path) -> None:
    mine, other = Records(tmp_path / "a"), Records(tmp_path / "b")
    token = mine.new(SPEC).launch_token
    assert mine.is_ours(token)
    assert Records(tmp_path / "a").is_ours(token)
    assert not other.is_ours(token)


@pytest.mark.parametrize("content", [b"", b"\xff", b"0123456789ab\nmore", b"x" * 12])
def test_a_damaged_id_is_an_error_for_a_new_one_would_disown_every_engine(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "id").write_bytes(content)
    with pytest.raises(StateDirError, match="damaged"):
        Records(tmp_path)
