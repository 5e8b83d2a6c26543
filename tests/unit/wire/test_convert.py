"""Every message survives the wire as it was; what is unknown is never taken for healthy."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.domain import messages, node, shard
from llmgw.domain.messages import Down, Up
from llmgw.domain.shard import ShardState
from llmgw.wire import agent_pb2 as pb
from llmgw.wire.convert import (
    MalformedMessageError,
    down_from_wire,
    down_to_wire,
    from_wire,
    to_wire,
    up_from_wire,
    up_to_wire,
)

NAMESPACE = {
    **{name: value for module in (node, shard, messages) for name, value in vars(module).items()},
    "Mapping": typing.Mapping,
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    bool: st.booleans(),
    int: st.integers(0, 2**31 - 1),
    float: st.floats(0, 1e9),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type of the domain."""
    if kind in SCALARS:
        return SCALARS[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin in (typing.get_origin(typing.Mapping[str, str]), dict):
        return st.dictionaries(TEXT, TEXT, max_size=2)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(st.none() if a is type(None) else values(a) for a in arguments))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return st.sampled_from(kind)
    hints = typing.get_type_hints(kind, NAMESPACE)
    return st.builds(kind, **{f.name: values(hints[f.name]) for f in dataclasses.fields(kind)})


def bodies(names: str) -> list[type[Any]]:
    return [NAMESPACE[name.strip()] for name in names.split("|")]


UP = bodies(str(messages.UpBody))
DOWN = bodies(str(messages.DownBody))


def test_every_message_of_the_protocol_is_covered() -> None:
    assert len(UP) == len(pb.Up.DESCRIPTOR.oneofs_by_name["body"].fields)
    assert len(DOWN) == len(pb.Down.DESCRIPTOR.oneofs_by_name["body"].fields)


@given(st.integers(0, 2**63), st.sampled_from(UP).flatmap(values))
def test_what_an_agent_says_arrives_as_it_was(term: int, body: Any) -> None:
    up = Up(term, body)
    assert up_from_wire(pb.Up.FromString(up_to_wire(up).SerializeToString())) == up


@given(st.integers(0, 2**63), TEXT, st.sampled_from(DOWN).flatmap(values))
def test_what_a_leader_says_arrives_as_it_was(term: int, message_id: str, body: Any) -> None:
    down = Down(term, message_id, body)
    assert down_from_wire(pb.Down.FromString(down_to_wire(down).SerializeToString())) == down


@pytest.mark.parametrize("number", [0, 99])
def test_an_unknown_state_is_failed_never_healthy(number: int) -> None:
    report = shard.ShardReport(spec(), ShardState.READY)
    message = to_wire(report)
    message.state = number
    assert from_wire(message).state is ShardState.FAILED


def test_silence_about_a_list_is_not_an_empty_list() -> None:
    silent, none = messages.AgentHeartbeat(1), messages.AgentHeartbeat(1, gpus=())
    assert from_wire(to_wire(silent)).gpus is None
    assert from_wire(to_wire(none)).gpus == ()


def test_an_unknown_number_is_neither_zero_nor_a_default() -> None:
    unknown = node.Gpu(0, "GPU-1", "x")
    zero = node.Gpu(0, "GPU-1", "x", memory_used_bytes=0)
    assert from_wire(to_wire(unknown)).memory_used_bytes is None
    assert from_wire(to_wire(zero)).memory_used_bytes == 0


@pytest.mark.parametrize(
    "message",
    [
        pb.Up(term=1),
        pb.Up(register=pb.Register(node_id="n")),
        pb.Up(shard_status=pb.ShardStatus()),
        pb.Up(shard_status=pb.ShardStatus(shard=pb.ShardReport())),
    ],
)
def test_a_message_without_its_parts_is_malformed(message: pb.Up) -> None:
    with pytest.raises(MalformedMessageError):
        up_from_wire(message)


def spec() -> shard.ShardSpec:
    profile = shard.ProfileSpec("p", "command")
    return shard.ShardSpec("r", "r.0", "m", profile, "hash", http_port=1)
