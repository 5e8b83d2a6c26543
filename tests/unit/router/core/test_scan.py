"""Scanning finds what parsing finds, in parts that are small whatever the body is."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llmgw.router.core import scan
from llmgw.router.core.naming import Asked, BodyError, read_json, rename_json, rename_places
from llmgw.router.core.scan import FIELDS_MAX, PART_BYTES, scan_json

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
PART_S_MAX = 0.04  # a part takes 1 to 6 ms, parsing all of the bodies below 100 and more

texts = st.text(max_size=8) | st.sampled_from(
    ['"', "\\", '\\"', "model", '"model":"x"', "}{][", "\u00e9"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(["model", "stream", "messages", "\\model", "Model"]) | texts
fields = st.lists(st.tuples(keys, st.just(True) | texts | values), max_size=6)


def scanned(body: bytes) -> Asked:
    parts = scan_json(body)
    while True:
        try:
            next(parts)
        except StopIteration as done:
            asked: Asked = done.value
            return asked


def outcome(read: Any, body: bytes) -> tuple[object, ...]:
    try:
        asked = read(body)
    except BodyError as error:
        return (str(error), error.param)
    return (asked.model, asked.stream)


def written(
    listed: list[tuple[str, object]], indent: int | None, *, ascii_only: bool, escaped: bool
) -> bytes:
    """An object with its fields in this order, some of them perhaps twice."""
    space = "" if indent is None else " \n\t"[: indent + 1]
    members = []
    for key, value in listed:
        name = json.dumps(key, ensure_ascii=ascii_only)
        if escaped and key:
            name = '"' + "".join(f"\\u{ord(letter):04x}" for letter in key[:9]) + '"'
        members.append(f"{space}{name}{space}:{space}{_text(value, indent, ascii_only)}{space}")
    return (space + "{" + ",".join(members) + "}" + space).encode("utf-8", "surrogatepass")


def _text(value: object, indent: int | None, ascii_only: bool) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=ascii_only)


@settings(deadline=None, max_examples=400)
@given(
    fields,
    st.sampled_from([None, 0, 1, 2]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([2, 3, 7, PART_BYTES]),
)
@example([("model", "m"), ("model", {"model": "n"})], None, True, True, 2)
@example([("stream", True), ("stream", False), ("model", "m")], None, True, False, PART_BYTES)
@example([("model", "a\\"), ("stream", True), ("model", '"')], 1, False, False, 3)
def test_scanning_finds_what_parsing_finds(
    listed: list[tuple[str, object]],
    indent: int | None,
    ascii_only: bool,
    escaped: bool,
    part_bytes: int,
) -> None:
    body = written(listed, indent, ascii_only=ascii_only, escaped=escaped)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "PART_BYTES", part_bytes)
        assert outcome(scanned, body) == outcome(read_json, body)
        if isinstance(outcome(scanned, body)[1], bool):
            renamed = rename_places(body, scanned(body).places, "new\\é")
            assert json.loads(renamed) == json.loads(rename_json(body, "new\\é"))
            assert renamed == rename_json(body, "new\\é")


@settings(deadline=None, max_examples=300)
@given(fields, st.integers(0, 200), st.binary(max_size=3), st.sampled_from([2, PART_BYTES]))
def test_a_damaged_body_is_refused_or_means_the_same(
    listed: list[tuple[str, object]], at: int, junk: bytes, part_bytes: int
) -> None:
    body = written([*listed, ("model", "m")], None, ascii_only=True, escaped=False)
    body = body[:at] + junk + body[at + len(junk) :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "PART_BYTES", part_bytes)
        found, parsed = outcome(scanned, body), outcome(read_json, body)
    if isinstance(parsed[1], bool):
        assert found == parsed
    assert found[1] is None or isinstance(found[1], bool | str)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"[]",
        b'"model"',
        b"{",
        b'{"model"',
        b'{"model":',
        b'{"model":"m"',
        b'{"model":"m",}',
        b'{"model":"m"}x',
        b'{"model" "m"}',
        b'{,"model":"m"}',
        b'{"model":"m\\"}',
        b'{"model":"\\q"}',
        b'{"model":"\xff"}',
        b'{"model":"m","x":[1,2}',
        b'{"model":"m","x":"',
        '{"model":"m"}'.encode("utf-16"),
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"model":"m"}',
        b'{"model":' + b" " * 100_000 + b'"m"}',
        b'{"model":"' + b"m" * 100_000 + b'"}',
        b"{" + b'"a":1,' * FIELDS_MAX + b'"model":"m"}',
    ],
)
def test_what_is_broken_outside_values_or_absurd_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        scanned(body)


def test_a_byte_order_mark_is_no_harm() -> None:
    assert scanned(b'\xef\xbb\xbf{"model":"m"}').model == "m"


def _large() -> Iterator[tuple[str, bytes]]:
    yield "one long string", b'"' + b"x" * (32 * MIB) + b'"'
    yield "escapes", b'"' + b'\\"' * (8 * MIB) + b'"'
    yield "numbers", b"[" + b"12345," * (4 * MIB) + b"1]"
    yield "short strings", b"[" + b'"ab",' * (4 * MIB) + b"1]"
    yield "messages", b"[" + b'{"role":"user","content":["a b c"]},' * 200_000 + b"1]"
    yield "brackets", b"[" + b"[[[[]]]]," * 200_000 + b"1]"
    yield "white space", b"[" + b" " * (48 * MIB) + b"]"
    yield "strings as long as a part", b"[" + (b'"' + b"x" * PART_BYTES + b'",') * 240 + b"1]"


@pytest.mark.parametrize(("_what", "value"), [pytest.param(*one, id=one[0]) for one in _large()])
def test_no_part_takes_long_whatever_the_body_is(_what: str, value: bytes) -> None:
    body = b'{"a":' + value + b',"stream":true,"model":"m"}'
    parts = scan_json(body)
    longest_s, asked = 0.0, None
    while asked is None:
        before_s = time.thread_time()
        try:
            next(parts)
        except StopIteration as done:
            asked = done.value
        longest_s = max(longest_s, time.thread_time() - before_s)
    assert asked[:2] == ("m", True)
    assert longest_s < PART_S_MAX
