"""The model is read and renamed; every other byte stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router.core.naming import (
    LINE_BYTES_MAX,
    AnswerNames,
    Asked,
    BodyError,
    Lines,
    read_json,
    rename_json,
)

names = st.text(min_size=1, max_size=20).filter(lambda name: name.isprintable())
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)
objects = st.dictionaries(st.text(max_size=3) | st.just("model"), values, max_size=4)


@settings(deadline=None)
@given(
    document=objects,
    asked=names,
    served=names,
    indent=st.sampled_from([None, 0, 3]),
    ascii_only=st.booleans(),
)
def test_renaming_a_request_changes_its_model_and_nothing_else(
    document: dict[str, Any], asked: str, served: str, indent: int | None, *, ascii_only: bool
) -> None:
    document["model"] = asked
    body = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode(
        "utf-8", "surrogatepass"
    )
    assert read_json(body).model == asked
    renamed = rename_json(body, served)
    assert json.loads(renamed) == document | {"model": served}


def test_numbers_order_and_spaces_are_kept() -> None:
    body = b' {"a":1.00,\t"big":123456789012345678901234567890, "model" : "m" ,"z":1e400} '
    assert rename_json(body, "x/y") == body.replace(b'"m"', b'"x/y"')


def test_a_key_given_twice_is_renamed_twice() -> None:
    body = b'{"model": "a", "nested": {"model": "a"}, "model": "b"}'
    assert read_json(body).model == "b"
    assert rename_json(body, "s") == b'{"model": "s", "nested": {"model": "a"}, "model": "s"}'


@pytest.mark.parametrize(
    ("body", "stream"),
    [(b'{"model": "m", "stream": true}', True), (b'{"model": "m", "stream": 1}', False)],
)
def test_streaming_is_asked_for_with_true(body: bytes, *, stream: bool) -> None:
    assert read_json(body) == Asked("m", stream)


@pytest.mark.parametrize("body", [b"", b"nul", b'"m"', b"{}", b'{"model": 7}', b"\x80"])
def test_what_names_no_model_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        read_json(body)


def test_every_own_name_in_an_answer_becomes_the_asked_one() -> None:
    answer = b'{"model":"/m/x.gguf","response":{"model": "\\/m\\/x.gguf"},"n":{"model":"other"}}'
    renamed = AnswerNames("/m/x.gguf", "org/m").rename(answer)
    assert json.loads(renamed) == {
        "model": "org/m",
        "response": {"model": "org/m"},
        "n": {"model": "other"},
    }


@settings(deadline=None)
@given(names, names, st.text())
def test_text_that_looks_like_a_model_field_is_left_alone(
    served: str, asked: str, text: str
) -> None:
    content = text + json.dumps({"model": served})
    answer = json.dumps({"model": served, "content": content}).encode()
    renamed = json.loads(AnswerNames(served, asked).rename(answer))
    assert renamed == {"model": asked, "content": content}


def test_a_replacement_is_taken_literally() -> None:
    assert AnswerNames("a", r"\1\g<0>").rename(b'{"model":"a"}') == b'{"model":"\\\\1\\\\g<0>"}'


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30))
def test_lines_split_anywhere_come_out_whole_and_renamed(cuts: list[int]) -> None:
    whole = b'data: {"model":"served","x":"\xc3\xa9"}\n\ndata: {"model": "served"}\r\n\r\nrest'
    lines = Lines(AnswerNames("served", "asked"))
    position, out = 0, []
    for cut in cuts:
        out.append(lines.feed(whole[position : position + cut]))
        position += cut
    out += [lines.feed(whole[position:]), lines.finish()]
    assert all(piece.endswith(b"\n") for piece in out[:-1] if piece)
    assert b"".join(out) == whole.replace(b"served", b"asked")


def test_a_whole_line_goes_on_at_once_and_as_it_is() -> None:
    piece = b"data: 1\n\n"
    assert Lines(None).feed(piece) is piece


def test_a_line_above_the_limit_is_not_held_for_ever() -> None:
    lines = Lines(None)
    piece = b"x" * (LINE_BYTES_MAX // 2)
    passed = [lines.feed(piece) for _ in range(4)]
    assert b"".join(passed) + lines.finish() == piece * 4
    assert any(passed)
