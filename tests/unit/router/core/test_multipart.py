"""The model field of a form is found and renamed among files of any content."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router.core.multipart import read_form, rename_form
from llmgw.router.core.naming import Asked, BodyError

TYPE = "multipart/form-data; charset=utf-8; boundary=xYz"


def form(*parts: tuple[bytes, bytes]) -> bytes:
    lines = [
        b'--xYz\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % part for part in parts
    ]
    return b"".join(lines) + b"--xYz--\r\n"


@settings(deadline=None)
@given(data=st.binary(max_size=200).filter(lambda data: b"--xYz" not in data), first=st.booleans())
def test_the_model_is_found_before_or_after_any_file(data: bytes, *, first: bool) -> None:
    parts = [(b"model", b"whisper"), (b"file", data)]
    body = form(*(parts if first else reversed(parts)))
    assert read_form(TYPE, body).model == "whisper"
    renamed = rename_form(TYPE, body, "served/name")
    assert renamed == form(
        *(
            (name, b"served/name" if name == b"model" else value)
            for name, value in (parts if first else reversed(parts))
        )
    )


def test_a_field_inside_a_file_is_not_the_model() -> None:
    inner = b'\r\nContent-Disposition: form-data; name="model"\r\n\r\nwrong\r\n'
    body = form((b"file", inner), (b"model", b"right"))
    assert read_form(TYPE, body).model == "right"


def test_a_quoted_boundary_and_lower_case_headers() -> None:
    body = b"--a b\r\ncontent-disposition: form-data; name=model\r\n\r\nm\r\n--a b--"
    assert read_form('multipart/form-data; boundary="a b"', body) == Asked("m", stream=False)


def test_streaming_in_a_form_is_the_text_true() -> None:
    assert read_form(TYPE, form((b"model", b"m"), (b"stream", b"true"))).stream
    assert not read_form(TYPE, form((b"model", b"m"), (b"stream", b"false"))).stream


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", form((b"model", b"m"))),
        (TYPE, b""),
        (TYPE, form((b"file", b"x"))),
        (TYPE, form((b"model", b""))),
        (TYPE, form((b"model", b"\xff"))),
        (TYPE, b"--xYz\r\nno end of header"),
        (TYPE, b'--xYz\r\nContent-Disposition: form-data; name="model"\r\n\r\nno end'),
        (TYPE, b"--xYz"),
    ],
)
def test_what_names_no_model_is_refused(content_type: str, body: bytes) -> None:
    with pytest.raises(BodyError):
        read_form(content_type, body)
