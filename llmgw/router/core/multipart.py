"""Reads and renames the `model` field of a multipart form, leaving every other byte as it was.

Only what is needed of RFC 7578: parts are found by their boundary, a part by the name in its
Content-Disposition. Files in the form are never copied while looking.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from llmgw.router.core.naming import Asked, BodyError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^;\s]{1,70}))', re.IGNORECASE)
_NAME = re.compile(rb'content-disposition:[^\r\n]*[;\s]name="?([^";\r\n]*)"?', re.IGNORECASE)
_PART_HEADER_BYTES_MAX = 16_384
_PARTS_MAX = 1_000


def read_form(content_type: str, body: bytes) -> Asked:
    """Which model a form asks for.

    Raises:
        BodyError: it is no multipart form, or has no field `model`.
    """
    start, end = _span(content_type, body, b"model")
    try:
        model = body[start:end].decode()
    except UnicodeDecodeError as error:
        raise BodyError("'model' is not valid UTF-8", "model") from error
    if not model:
        raise BodyError("'model' is empty", "model")
    return Asked(model=model, stream=_optional(content_type, body, b"stream") == b"true")


def rename_form(content_type: str, body: bytes, model: str) -> bytes:
    """The same form with another model; `read_form` accepted it."""
    start, end = _span(content_type, body, b"model")
    return b"".join((memoryview(body)[:start], model.encode(), memoryview(body)[end:]))


def _span(content_type: str, body: bytes, field: bytes) -> tuple[int, int]:
    for name, start, end in _parts(content_type, body):
        if name == field:
            return start, end
    raise BodyError(f"the form field {field.decode()!r} is missing", field.decode())


def _optional(content_type: str, body: bytes, field: bytes) -> bytes:
    for name, start, end in _parts(content_type, body):
        if name == field:
            return body[start:end]
    return b""


def _parts(content_type: str, body: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Name, and start and end of the value, of each part."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise BodyError("the multipart form has no boundary")
    delimiter = b"--" + (match[1] or match[2]).encode("latin-1", "replace")
    position = body.find(delimiter)
    for _ in range(_PARTS_MAX):
        if position < 0 or body.startswith(b"--", position + len(delimiter)):
            return
        head_start = position + len(delimiter)
        head_end = body.find(b"\r\n\r\n", head_start, head_start + _PART_HEADER_BYTES_MAX)
        if head_end < 0:
            raise BodyError("the multipart form is damaged: a part's header does not end")
        value_start = head_end + 4
        position = body.find(b"\r\n" + delimiter, head_end + 2)
        if position < 0:
            raise BodyError("the multipart form is damaged: a part does not end")
        name = _NAME.search(body, head_start, head_end)
        if name is not None:
            yield name[1], value_start, max(value_start, position)
        position += 2
