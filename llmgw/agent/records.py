"""What is on disk about each shard, so that a later agent knows it again.

Guarantees: a shard's whole spec and launch token are durable before its engine is started, and
every later fact (process, state, outcome) replaces the record atomically. Launch tokens begin with
this state directory's own id, so that agents sharing a machine never mistake each other's engines.
Does not look at processes (`llmgw.agent.processes`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from google.protobuf import json_format

from llmgw.agent.errors import RecordError
from llmgw.agent.processes import Identity
from llmgw.domain.shard import ShardSpec, ShardState
from llmgw.kit.files import write_atomically
from llmgw.wire import agent_pb2 as pb
from llmgw.wire.convert import MalformedMessageError, from_wire, to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VERSION = 1
_NAME_LENGTH_MAX = 120


@dataclass(frozen=True, slots=True)
class Record:
    """One shard on disk. `started_s` and `ready_s` are CLOCK_BOOTTIME seconds; 0 is "not yet".

    `identity` is None until the engine was spawned. `exit_code` and `last_output` belong to the
    state FAILED.
    """

    spec: ShardSpec
    launch_token: str
    output: str
    state: ShardState = ShardState.PENDING
    reason: str = ""
    identity: Identity | None = None
    started_s: float = 0.0
    ready_s: float = 0.0
    exit_code: int | None = None
    last_output: tuple[str, ...] = ()


class Records:
    """The records of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._folder = state_dir / "shards"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._outputs = state_dir / "logs"
        self._owner = self._own_id()
        # One writer thread: the event loop does not wait for the disk, and writes stay in order.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="records")

    def new(self, spec: ShardSpec) -> Record:
        """A record for a new incarnation, with a fresh launch token; not yet on disk."""
        launch = uuid.uuid4().hex[:12]
        output = self._outputs / f"{_file_name(spec.shard_id)}.{launch}.log"
        return Record(spec=spec, launch_token=f"{self._owner}:{launch}", output=str(output))

    def is_ours(self, launch_token: str) -> bool:
        """Whether a launch token was made in this state directory."""
        return launch_token.startswith(f"{self._owner}:")

    async def save(self, record: Record) -> None:
        """Make a record durable."""
        path, content = self._path(record.spec.shard_id), encode(record)
        await asyncio.get_running_loop().run_in_executor(
            self._writer, write_atomically, path, content
        )

    async def remove(self, shard_id: str) -> None:
        """Forget a shard."""
        await asyncio.get_running_loop().run_in_executor(
            self._writer, lambda: self._path(shard_id).unlink(missing_ok=True)
        )

    def close(self) -> None:
        """Wait for writes under way."""
        self._writer.shutdown()

    def load(self) -> tuple[list[Record], list[RecordError]]:
        """Every readable record, and what is wrong with the others."""
        records: list[Record] = []
        problems: list[RecordError] = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                records.append(decode(path.read_bytes()))
            except (OSError, RecordError) as error:
                problems.append(RecordError(f"record {path.name} cannot be read: {error}"))
        return records, problems

    def _path(self, shard_id: str) -> Path:
        return self._folder / f"{_file_name(shard_id)}.json"

    def _own_id(self) -> str:
        path = self.state_dir / "id"
        if not path.exists():
            write_atomically(path, uuid.uuid4().hex[:12].encode())
        return path.read_text(encoding="ascii").strip()


def encode(record: Record) -> bytes:
    """A record as versioned JSON."""
    document: dict[str, Any] = {
        "version": VERSION,
        "spec": json_format.MessageToDict(to_wire(record.spec), preserving_proto_field_name=True),
        "identity": None if record.identity is None else dataclasses.asdict(record.identity),
    }
    for field in ("launch_token", "output", "state", "reason", "started_s", "ready_s"):
        document[field] = getattr(record, field)
    document["exit_code"] = record.exit_code
    document["last_output"] = list(record.last_output)
    return json.dumps(document, indent=1).encode()


def decode(content: bytes) -> Record:
    """Read a record; fields that a newer agent added are ignored.

    Raises:
        RecordError: it is not a record of a version this agent knows.
    """
    try:
        document = json.loads(content)
        if document["version"] != VERSION:
            raise RecordError(f"version {document['version']} is not {VERSION}")
        return _record(document)
    except (
        ValueError,
        KeyError,
        TypeError,
        json_format.ParseError,
        MalformedMessageError,
    ) as error:
        raise RecordError(str(error) or type(error).__name__) from error


def _record(document: Mapping[str, Any]) -> Record:
    spec = json_format.ParseDict(document["spec"], pb.ShardSpec(), ignore_unknown_fields=True)
    identity = document["identity"]
    return Record(
        spec=from_wire(spec),
        launch_token=str(document["launch_token"]),
        output=str(document["output"]),
        state=ShardState(document["state"]),
        reason=str(document["reason"]),
        identity=None if identity is None else Identity(**identity),
        started_s=float(document["started_s"]),
        ready_s=float(document["ready_s"]),
        exit_code=document["exit_code"],
        last_output=tuple(document["last_output"]),
    )


def _file_name(shard_id: str) -> str:
    """A file name that is unique for the shard id, whatever it contains."""
    name = quote(shard_id, safe="")
    if len(name) <= _NAME_LENGTH_MAX and not name.startswith("."):
        return name
    return f"{name[:40].lstrip('.')}-{hashlib.sha256(shard_id.encode()).hexdigest()[:16]}"
