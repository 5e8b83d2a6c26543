"""Reads a catalog file strictly, and knows the line of everything in it.

YAML turns an unquoted 1.10 into 1.1, `no` into false and 0123 into 83, and lets the last of two
equal keys win in silence. None of that may reach a catalog: a value of the wrong kind is shown as
it stands in the file beside what YAML made of it, and a key that stands twice is a problem. Every
problem is reported, not only the first, each as `file:line: models[1].profiles[0].tp: reason`;
that holds for problems a control plane finds too, as they come back as paths.

Accepted shapes: a mapping with `models` and optionally `revision`, one model, a list of models, or
several documents of these. JSON is YAML and is read the same way.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import yaml

from llmgw.ctl.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FILE_BYTES_MAX = 16 * 2**20
NODES_MAX = 200_000
DEPTH_MAX = 40
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {
    _TAG + kind for kind in ("str", "null", "bool", "int", "float", "timestamp", "map", "seq")
}
_EXPECTED_TEXT = "expected text"
_DISGUISED = re.compile(r"[-+]?0[0-9_]+|.*:.*")
_FILE_KEYS = ("models", "revision")

FieldPath: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One problem of the file itself: where, which field, and why.

    `unread`: there is no value at the path, so what the schema says about it is no news.
    """

    line: int
    path: FieldPath
    reason: str
    unread: bool = True


@dataclass(slots=True)
class CatalogFile:
    """What a file says: raw models, the revision it was read at, and where everything stands."""

    name: str
    models: list[Any] = field(default_factory=list)
    revision: int | None = None
    faults: list[Fault] = field(default_factory=list)
    lines: dict[FieldPath, int] = field(default_factory=dict)
    unquoted: dict[FieldPath, tuple[str, object]] = field(default_factory=dict)

    def describe(self, path: FieldPath, reason: str) -> str:
        """A problem at a path as one line an operator (and an editor) can follow."""
        return _show(self.name, self._line_of(path), path, self._reason(path, reason))

    def _reason(self, path: FieldPath, reason: str) -> str:
        if path in self.unquoted and reason.startswith(_EXPECTED_TEXT):
            return _mistaken(*self.unquoted[path])
        return reason

    def _line_of(self, path: FieldPath) -> int | None:
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def check(self) -> None:
        """Check the file and its models as one catalog.

        Raises:
            RefusedError: with every problem, in the order of the file.
        """
        # Loading the schema takes longer than everything else here; `ctl status` never needs it.
        from llmgw.domain.catalog import CatalogError, check_models  # noqa: PLC0415

        known = {fault.path for fault in self.faults if fault.unread}
        found = list(self.faults)
        try:
            check_models(self.models)
        except CatalogError as error:
            for problem in error.problems:
                if problem.path not in known:
                    known.add(problem.path)
                    line = self._line_of(problem.path) or 0
                    found.append(Fault(line, problem.path, problem.reason))
        found += [fault for fault in self._disguised_numbers() if fault.path not in known]
        found.sort(key=lambda fault: fault.line)
        if found:
            listed = [
                _show(self.name, fault.line, fault.path, self._reason(fault.path, fault.reason))
                for fault in found
            ]
            raise refusal(self.name, listed)

    def _disguised_numbers(self) -> Iterator[Fault]:
        """Numbers that YAML reads in another base than a person does: 010 is 8, 1:30 is 90."""
        for path, (text, value) in self.unquoted.items():
            if isinstance(value, int) and _DISGUISED.fullmatch(text):
                reason = f"YAML reads {text} as {_kind(value)}; write the number that is meant"
                yield Fault(self._line_of(path) or 0, path, reason)


def refusal(name: str, problems: Iterable[str]) -> RefusedError:
    """The error that lists all problems of one file."""
    listed = tuple(problems)
    count = "1 problem" if len(listed) == 1 else f"{len(listed)} problems"
    return RefusedError(f"{name} was refused: {count}; nothing was changed", listed)


def read_catalog_file(content: bytes, name: str) -> CatalogFile:
    """Read a file; what is wrong inside is collected in `faults`.

    Raises:
        RefusedError: the file cannot be read as YAML at all.
    """
    file = CatalogFile(name)
    reader = _Reader(file)
    documents = 0
    for node in _compose(content, name):
        documents += 1
        reader.read_document(node)
    if documents == 0:
        raise RefusedError(f"{name} is empty: expected models")
    return file


def _compose(content: bytes, name: str) -> list[yaml.Node]:
    if len(content) > FILE_BYTES_MAX:
        raise RefusedError(f"{name} is larger than {FILE_BYTES_MAX // 2**20} MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise RefusedError(f"{name}:{line}: this is not UTF-8 text") from error
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        raise RefusedError(f"{place}: this is not YAML: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise RefusedError(f"{name}:{line}: YAML does not allow this character") from error
    except RecursionError as error:
        raise RefusedError(f"{name}: nested too deeply") from error
    # A document of comments only is composed as an empty scalar.
    return [node for node in documents if not _is_blank(node)]


def _is_blank(node: yaml.Node | None) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and node.value == "")


class _Reader:
    """Turns composed nodes into values; keeps lines; collects faults."""

    def __init__(self, file: CatalogFile) -> None:
        self._file = file
        self._constructor = yaml.SafeLoader("")
        self._nodes = 0

    def read_document(self, node: yaml.Node) -> None:
        if isinstance(node, yaml.SequenceNode):
            self._read_models(node)
        elif isinstance(node, yaml.MappingNode) and self._is_catalog(node):
            self._read_catalog(node)
        elif isinstance(node, yaml.MappingNode):
            self._add_model(node)
        else:
            self._fault(node, (), "expected a model, a list of models, or a mapping with `models`")

    @staticmethod
    def _is_catalog(node: yaml.MappingNode) -> bool:
        keys = {key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)}
        return "models" in keys or keys <= {"revision"}

    def _read_catalog(self, node: yaml.MappingNode) -> None:
        for key, value in self._entries(node, ()):
            if key == "models" and isinstance(value, yaml.SequenceNode):
                self._file.lines.setdefault(("models",), value.start_mark.line + 1)
                self._read_models(value)
            elif key == "models":
                self._fault(value, ("models",), "expected a list of models")
            elif key == "revision":
                self._read_revision(value)
            else:
                known = " and ".join(f"`{name}`" for name in _FILE_KEYS)
                self._fault(value, (key,), f"no such field; beside a list of models stand {known}")

    def _read_revision(self, node: yaml.Node) -> None:
        revision = self._value(node, ("revision",), 0)
        if not isinstance(revision, int) or isinstance(revision, bool) or revision < 0:
            self._fault(node, ("revision",), "expected the number that `ctl get` printed")
        elif self._file.revision not in (None, revision):
            self._fault(node, ("revision",), f"an earlier document says {self._file.revision}")
        else:
            self._file.revision = revision

    def _read_models(self, node: yaml.SequenceNode) -> None:
        for item in node.value:
            self._add_model(item)

    def _add_model(self, node: yaml.Node) -> None:
        path: FieldPath = ("models", len(self._file.models))
        self._file.models.append(None)
        self._file.models[-1] = self._value(node, path, 0)

    def _value(self, node: yaml.Node, path: FieldPath, depth: int) -> Any:
        self._file.lines.setdefault(path, node.start_mark.line + 1)
        self._nodes += 1
        if depth > DEPTH_MAX or self._nodes > NODES_MAX:
            # Also what a YAML alias that contains itself, or a bomb of aliases, comes to.
            raise RefusedError(f"{self._file.name}: nested too deeply or too large")
        if node.tag not in _PLAIN_TAGS:
            self._fault(node, path, f"the YAML tag {node.tag.removeprefix(_TAG)} is not supported")
            return None
        if isinstance(node, yaml.MappingNode):
            return {
                key: self._value(value, (*path, key), depth + 1)
                for key, value in self._entries(node, path)
            }
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        return self._scalar(cast("yaml.ScalarNode", node), path)

    def _scalar(self, node: yaml.ScalarNode, path: FieldPath) -> Any:
        try:
            value = self._constructor.construct_object(node)
        except (ValueError, OverflowError, yaml.YAMLError):
            kind = node.tag.removeprefix(_TAG)
            self._fault(
                node, path, f"YAML takes {node.value} for a {kind}, but it is none; quote it"
            )
            return None
        if not isinstance(value, str):
            self._file.unquoted[path] = (node.value, value)
        return value

    def _entries(self, node: yaml.MappingNode, path: FieldPath) -> list[tuple[str, yaml.Node]]:
        """The entries whose keys are text and new, with the line of each key noted."""
        entries: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = self._key(key, path)
            if name is None:
                continue
            line = key.start_mark.line + 1
            if name in entries:
                first = self._file.lines[*path, name]
                reason = f"this key stands here twice (first in line {first})"
                self._file.faults.append(Fault(line, (*path, name), reason, unread=False))
                continue
            self._file.lines[*path, name] = line
            entries[name] = value
        return list(entries.items())

    def _key(self, key: yaml.Node, path: FieldPath) -> str | None:
        if not isinstance(key, yaml.ScalarNode):
            self._fault(key, path, "a key must be text")
            return None
        if key.tag == _TAG + "merge":
            self._fault(key, path, "YAML merge keys (<<) are not supported: write the fields out")
            return None
        value = self._value(key, (*path, "(key)"), 0)
        if not isinstance(value, str):
            self._fault(key, path, f"as a key: {_mistaken(key.value, value)}")
            return None
        return value

    def _fault(self, node: yaml.Node, path: FieldPath, reason: str) -> None:
        self._file.faults.append(Fault(node.start_mark.line + 1, path, reason))


def _mistaken(text: str, value: object) -> str:
    if text == "":
        return f"{_EXPECTED_TEXT}, but nothing stands here"
    return f'{_EXPECTED_TEXT}, but YAML reads {text} as {_kind(value)}; quote it: "{text}"'


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, (int, float)):
        return f"the number {value}" if math.isfinite(value) else f"the special number {value}"
    if isinstance(value, (dt.date, dt.datetime)):
        return f"the date {value.isoformat()}"
    return type(value).__name__


def _show(name: str, line: int | None, path: FieldPath, reason: str) -> str:
    place = f"{name}:{line}" if line else name
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return f"{place}: {text}: {reason}" if text else f"{place}: {reason}"
