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
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from google.protobuf import json_format

from llmgw.agent.errors import RecordError, StateDirError
from llmgw.agent.processes import Identity
from llmgw.domain.shard import ShardReport, ShardSpec, ShardState
from llmgw.kit.files import write_atomically
from llmgw.wire import agent_pb2 as pb
from llmgw.wire.convert import MalformedMessageError, from_wire, to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VERSION = 1
_NAME_LENGTH_MAX = 120
_OWNER = re.compile(rb"[0-9a-f]{12}")


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

    def report(self, reason: str, ready_for_s: float = 0.0) -> ShardReport:
        """The shard as a leader is told of it."""
        identity = self.identity
        return ShardReport(
            spec=self.spec,
            state=self.state,
            pid=identity.pid if identity else 0,
            process_group=identity.process_group if identity else 0,
            process_start_ticks=identity.start_ticks if identity else 0,
            reason=reason,
            ready_for_s=ready_for_s,
            exit_code=self.exit_code,
            last_output=self.last_output,
        )


class Records:
    """The records of one state directory.

    Raises:
        StateDirError: the directory cannot be used.
    """

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._folder = state_dir / "shards"
        self._outputs = state_dir / "logs"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._owner = self._own_id()
        except OSError as error:
            raise StateDirError(f"cannot use --state-dir {state_dir}: {error}") from error
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
        owner = path.read_bytes()
        if not _OWNER.fullmatch(owner):
            # A new one would make strangers of all engines that run here.
            raise StateDirError(f"{path} is damaged: {owner[:40]!r}; restore it, or remove it once")
        return owner.decode()


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
        record = _record(document)
        # What is kept here is reported one day: what does not fit a report is refused now.
        to_wire(record.report(record.reason))
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        SystemError,  # from within protobuf, for text that is none
        json_format.ParseError,
        MalformedMessageError,
    ) as error:
        raise RecordError(str(error) or type(error).__name__) from error
    return record


def _record(document: Mapping[str, Any]) -> Record:
    spec = json_format.ParseDict(document["spec"], pb.ShardSpec(), ignore_unknown_fields=True)
    identity = None if document["identity"] is None else Identity(**document["identity"])
    if identity is not None:
        numbers = (identity.pid, identity.process_group, identity.start_ticks)
        texts = (identity.boot_id, identity.launch_token)
        if {type(n) for n in numbers} != {int} or {type(t) for t in texts} != {str}:
            raise TypeError(f"{document['identity']} does not name a process")
    if document["state"] == ShardState.STOPPED:
        raise ValueError("a shard that stopped leaves no record")
    return Record(
        spec=from_wire(spec),
        launch_token=str(document["launch_token"]),
        output=str(document["output"]),
        state=ShardState(document["state"]),
        reason=str(document["reason"]),
        identity=identity,
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
