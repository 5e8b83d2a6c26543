"""Messages of the agent stream to and from their protobuf form.

The values of `llmgw.domain` and the messages of `proto/` have the same names and the same fields,
so one pair of functions converts them all; what differs is said here: enums are prefixed on the
wire, and a heartbeat's `None` lists are a cleared `..._changed` flag. An unknown enum value becomes
FAILED, never something healthy.
"""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from llmgw.domain import messages, node, shard
from llmgw.wire import agent_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.message import Message


class MalformedMessageError(ValueError):
    """A message lacks a part without which it means nothing."""


_VALUES: dict[str, type[Any]] = {
    kind.__name__: kind
    for module in (node, shard, messages)
    for kind in vars(module).values()
    if dataclasses.is_dataclass(kind) and isinstance(kind, type)
} | {"Profile": shard.ProfileSpec}
_WIRE_NAMES: dict[type[Any], str] = {kind: name for name, kind in _VALUES.items()}
_WIRE_NAMES[shard.ProfileSpec] = "Profile"

_ENUMS: dict[str, type[StrEnum]] = {
    "ShardState": shard.ShardState,
    "InstallationState": node.InstallationState,
}
_FAILED = "failed"
_OPTIONAL_PARTS = {("Profile", "source"), ("ShardStatus", "fetch"), ("AgentHeartbeat", "load")}
_SILENT_LISTS = ("problems", "gpus", "storage", "weights", "engines")


def up_to_wire(up: messages.Up) -> pb.Up:
    """An agent's message as it goes out."""
    wire: pb.Up = _wrap(pb.Up(term=up.term), up.body)
    return wire


def down_to_wire(down: messages.Down) -> pb.Down:
    """A leader's message as it goes out."""
    wire: pb.Down = _wrap(pb.Down(term=down.term, message_id=down.message_id), down.body)
    return wire


def up_from_wire(message: pb.Up) -> messages.Up:
    """An agent's message as it came in.

    Raises:
        MalformedMessageError: no body, or a body without a part it needs.
    """
    return messages.Up(term=message.term, body=_body(message))


def down_from_wire(message: pb.Down) -> messages.Down:
    """A leader's message as it came in.

    Raises:
        MalformedMessageError: no body, or a body without a part it needs.
    """
    return messages.Down(message.term, message.message_id, _body(message))


def to_wire(value: object) -> Any:
    """Any value of the domain as its message."""
    name = _WIRE_NAMES[type(value)]
    message = getattr(pb, name)()
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        part = getattr(value, field.name)
        if name == "AgentHeartbeat" and field.name in _SILENT_LISTS:
            setattr(message, f"{field.name}_changed", part is not None)
        if part is not None:
            _set(message, field.name, part)
    return message


def from_wire(message: Message) -> Any:
    """Any message as its value.

    Raises:
        MalformedMessageError: a part is missing without which the value means nothing.
    """
    name = message.DESCRIPTOR.name
    kind = _VALUES[name]
    known = {field.name for field in dataclasses.fields(kind)}
    parts: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.name in known:
            parts[field.name] = _part(message, name, field)
    return kind(**parts)


def _wrap(envelope: Any, body: object) -> Any:
    wire = to_wire(body)
    for field in envelope.DESCRIPTOR.oneofs_by_name["body"].fields:
        if field.message_type is wire.DESCRIPTOR:
            getattr(envelope, field.name).CopyFrom(wire)
            return envelope
    raise AssertionError(f"{type(body).__name__} does not go this way")


def _body(message: pb.Up | pb.Down) -> Any:
    which = message.WhichOneof("body")
    if which is None:
        raise MalformedMessageError("a message without a body")
    return from_wire(getattr(message, which))


def _set(message: Any, name: str, part: object) -> None:
    if isinstance(part, StrEnum):
        field = message.DESCRIPTOR.fields_by_name[name]
        setattr(message, name, field.enum_type.values_by_name[_enum_name(part)].number)
    elif isinstance(part, tuple):
        items = [to_wire(item) if dataclasses.is_dataclass(item) else item for item in part]
        getattr(message, name).extend(items)
    elif isinstance(part, dict):
        getattr(message, name).update(part)
    elif dataclasses.is_dataclass(part):
        getattr(message, name).CopyFrom(to_wire(part))
    else:
        setattr(message, name, part)


def _part(message: Any, name: str, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.enum_type is not None:
        return _enum_value(field, value)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.is_repeated:
        if name == "AgentHeartbeat" and field.name in _SILENT_LISTS:
            changed = getattr(message, f"{field.name}_changed")
            return _items(field, value) if changed else None
        return _items(field, value)
    if field.has_presence and not message.HasField(field.name):
        if field.message_type is not None and (name, field.name) not in _OPTIONAL_PARTS:
            raise MalformedMessageError(f"{name} without {field.name}")
        return None
    return from_wire(value) if field.message_type is not None else value


def _items(field: Any, value: Any) -> tuple[Any, ...]:
    return tuple(from_wire(item) if field.message_type is not None else item for item in value)


def _enum_name(value: StrEnum) -> str:
    kind = type(value).__name__
    prefix = "".join("_" + char if char.isupper() else char.upper() for char in kind)[1:]
    return f"{prefix}_{value.name}"


def _enum_value(field: Any, number: int) -> StrEnum:
    kind = _ENUMS[field.enum_type.name]
    return next(
        (
            member
            for member in kind
            if field.enum_type.values_by_name[_enum_name(member)].number == number
        ),
        kind(_FAILED),
    )
