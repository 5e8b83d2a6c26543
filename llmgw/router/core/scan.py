"""Finds the `model` of a large JSON body without parsing it, a part at a time.

Parsing 60 MB holds up every stream of the router for two seconds; this skips over values with a
regular expression and pauses after each `PART_BYTES` or so. For valid JSON it finds what
`naming.read_json` finds. It does not validate: what is broken inside a value is passed on, and the
engine refuses it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from llmgw.router.core.naming import Asked, BodyError, kind_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

PART_BYTES = 262_144
FIELDS_MAX = 10_000
DEPTH_MAX = 1_000
TOKEN_BYTES_MAX = 65_536
_STEP_BYTES = 64  # what one step costs besides, in bytes skipped
_SPACE = re.compile(rb"[ \t\n\r]{0,65536}")
_IN_STRING = rb'(?:[^"\\]++|\\.)*+'
_FLAT = rb'[^"{}\[\]]++|"%b"' % _IN_STRING
_NESTED = rb"%b|\[(?:%b)*+\]|\{(?:%b)*+\}" % (_FLAT, _FLAT, _FLAT)
# Whole strings, and whole objects and lists down to the second level, as many as there are.
_SKIP = re.compile(rb"(?:%b|\[(?:%b)*+\]|\{(?:%b)*+\})*+" % (_FLAT, _NESTED, _NESTED))
_REST_OF_STRING = re.compile(_IN_STRING)
_SCALAR = re.compile(rb"[-+.0-9A-Za-z]{1,5000}")
_OPENING, _CLOSING = b"{[", b"}]"
_ESCAPED_KEY_BYTES_MAX = 64


def scan_json(body: bytes) -> Generator[None, None, Asked]:
    """Which model a body asks for, and where it says so; yields between parts.

    Raises:
        BodyError: it is no JSON object, or has no `model` that is text.
    """
    scan = _Scan(body)
    yield from scan.fields()
    if not scan.models:
        raise BodyError("the field 'model' is missing", "model")
    return Asked(_model(body, *scan.models[-1]), scan.stream, tuple(scan.models))


class _Scan:
    """A position in a body, and what was found before it."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._position = 3 if body.startswith(b"\xef\xbb\xbf") else 0
        self._spent_bytes = 0
        self.models: list[tuple[int, int]] = []
        self.stream = False

    def fields(self) -> Iterator[None]:
        """Go over the whole object."""
        self._expect(b"{")
        more = self._next() != b"}"
        fields = 0
        while more:
            fields += 1
            if fields > FIELDS_MAX:
                raise BodyError(f"the body has more than {FIELDS_MAX} fields")
            yield from self._field()
            if self._spend(self._position):
                yield
            more = self._next() == b","
            if more:
                self._position += 1
        self._expect(b"}")
        self._next()
        if self._position != len(self._body):
            raise _broken(self._position)

    def _field(self) -> Iterator[None]:
        self._next()
        start = self._position
        yield from self._string()
        key = self._body[start : min(self._position, start + _ESCAPED_KEY_BYTES_MAX)]
        self._expect(b":")
        self._next()
        start = self._position
        yield from self._value()
        if _is_key(key, "model"):
            self.models.append((start, self._position))
        elif _is_key(key, "stream"):
            self.stream = self._body[start : self._position] == b"true"

    def _value(self) -> Iterator[None]:
        begin = self._body[self._position : self._position + 1]
        if begin == b'"':
            yield from self._string()
        elif begin and begin in _OPENING:
            yield from self._container()
        else:
            scalar = _SCALAR.match(self._body, self._position)
            if scalar is None:
                raise _broken(self._position)
            self._position = scalar.end()

    def _container(self) -> Iterator[None]:
        """Skip an object or a list; which bracket closes which is not looked at."""
        body, depth = self._body, 0
        while True:
            begin = body[self._position : self._position + 1]
            if not begin:
                raise _broken(self._position)
            if begin == b'"':
                yield from self._string()
            elif begin in _OPENING or begin in _CLOSING:
                depth += 1 if begin in _OPENING else -1
                self._position += 1
                if depth == 0:
                    return
                if depth > DEPTH_MAX:
                    raise BodyError("the body is not valid JSON: it is nested too deep")
            skipped = _SKIP.match(body, self._position, self._position + PART_BYTES)
            if skipped is not None:
                if self._spend(skipped.end()):
                    yield
                self._position = skipped.end()

    def _string(self) -> Iterator[None]:
        """Skip a string; a long one is mostly data without a backslash."""
        body, start = self._body, self._position
        if body[start : start + 1] != b'"':
            raise _broken(start)
        end = body.find(b'"', start + 1)
        if end >= 0 and body.find(b"\\", start + 1, end) < 0:
            self._spent_bytes += end - start
            self._position = end + 1
            return
        self._position = start + 1
        while True:
            match = _REST_OF_STRING.match(body, self._position, self._position + PART_BYTES)
            end = self._position if match is None else match.end()
            if body[end : end + 1] == b'"':
                self._position = end + 1
                return
            if end == self._position:
                raise _broken(start)
            self._spend(end)
            self._position = end
            yield

    def _spend(self, end: int) -> bool:
        """Account for going on to `end`; whether it is time for a pause."""
        self._spent_bytes += end - self._position + _STEP_BYTES
        if self._spent_bytes < PART_BYTES:
            return False
        self._spent_bytes = 0
        return True

    def _next(self) -> bytes:
        """The next byte that is no white space; empty at the end."""
        match = _SPACE.match(self._body, self._position)
        if match is not None:
            self._position = match.end()
        return self._body[self._position : self._position + 1]

    def _expect(self, wanted: bytes) -> None:
        if self._next() != wanted:
            raise _broken(self._position)
        self._position += 1


def _model(body: bytes, start: int, end: int) -> str:
    begin = body[start : start + 1]
    if begin in _OPENING:
        kind = kind_of({} if begin == b"{" else [])
        raise BodyError(f"'model' must be text, not {kind}", "model")
    if end - start > TOKEN_BYTES_MAX:
        raise BodyError("'model' is too long", "model")
    try:
        model = json.loads(body[start:end])
    except ValueError as error:
        raise BodyError(f"the body is not valid JSON: {error}") from error
    if not isinstance(model, str):
        raise BodyError(f"'model' must be text, not {kind_of(model)}", "model")
    if not model:
        raise BodyError("'model' is empty", "model")
    return model


def _is_key(key: bytes, name: str) -> bool:
    if b"\\" not in key:
        return key == b'"%b"' % name.encode()
    try:
        return bool(json.loads(key) == name)
    except ValueError:
        return False


def _broken(position: int) -> BodyError:
    return BodyError(
        f"the body is not valid JSON: it must be one object, in UTF-8; see its byte {position}"
    )
