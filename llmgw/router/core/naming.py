"""Reads and renames the `model` of requests and answers, leaving every other byte as it was.

An engine knows its model by the name it was started with, clients by the catalog's name or an
alias. In a request the top-level field is replaced. In an answer every `"model"` key whose value
is the engine's name is: the text `"model":"x"` cannot occur inside a JSON string, where quotes
are escaped, so this needs no parser and reaches nested objects (`response.model`) too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
LINE_BYTES_MAX = 1 << 20


class BodyError(ValueError):
    """A request body that names no model. `param` is the field at fault, if it is one."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class Asked:
    """What the router needs to know of a request."""

    model: str
    stream: bool


def read_json(body: bytes) -> Asked:
    """Which model a JSON body asks for.

    Raises:
        BodyError: it is no JSON object, or has no `model` that is text.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BodyError(f"the body is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise BodyError("the body must be a JSON object")
    if "model" not in document:
        raise BodyError("the field 'model' is missing", "model")
    model = document["model"]
    if not isinstance(model, str):
        raise BodyError(f"'model' must be text, not {_kind(model)}", "model")
    if not model:
        raise BodyError("'model' is empty", "model")
    return Asked(model=model, stream=document.get("stream") is True)


def rename_json(body: bytes, model: str) -> bytes:
    """The same JSON object with `model` as its top-level model; `read_json` accepted it."""
    text = body.decode(json.detect_encoding(body), "surrogatepass")
    name = json.dumps(model)
    pieces: list[str] = []
    kept = 0
    position = _after_space(text, text.index("{") + 1)
    while text[position] != "}":
        key, position = _DECODER.raw_decode(text, position)
        position = _after_space(text, _after_space(text, position) + 1)
        start = position
        _, position = _DECODER.raw_decode(text, position)
        if key == "model":
            pieces += (text[kept:start], name)
            kept = position
        position = _after_space(text, position)
        if text[position] == ",":
            position = _after_space(text, position + 1)
    pieces.append(text[kept:])
    return "".join(pieces).encode("utf-8", "surrogatepass")


class AnswerNames:
    """Puts the name a client asked for where an engine wrote its own."""

    def __init__(self, served: str, asked: str) -> None:
        names = {json.dumps(served), json.dumps(served, ensure_ascii=False)}
        names |= {name.replace("/", "\\/") for name in names}
        alternatives = "|".join(re.escape(name) for name in sorted(names))
        self._pattern = re.compile(f'("model"\\s*:\\s*)(?:{alternatives})'.encode())
        self._replacement = json.dumps(asked).encode()

    def rename(self, answer: bytes) -> bytes:
        """Rename in a whole answer, or in whole lines of one."""
        return self._pattern.sub(self._put, answer)

    def _put(self, match: re.Match[bytes]) -> bytes:
        return match[1] + self._replacement


class Lines:
    """Lets an answer through in whole lines, renamed unless `names` is None.

    A piece that ends within a line waits for its rest: a reader of events could not use it
    earlier either, and if the rest never comes, no broken line was let through. A line above
    1 MiB is let through in parts.
    """

    def __init__(self, names: AnswerNames | None) -> None:
        self._names = names
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """The next piece of the answer; returns what may go on, possibly nothing."""
        if self._held or not piece.endswith(b"\n"):
            piece = self._held + piece
            end = piece.rfind(b"\n") + 1
            if len(piece) - end > LINE_BYTES_MAX:
                end = len(piece)
            piece, self._held = piece[:end], piece[end:]
        return piece if self._names is None else self._names.rename(piece)

    def finish(self) -> bytes:
        """What is left when the answer has ended well."""
        held, self._held = self._held, b""
        return held if self._names is None else self._names.rename(held)


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value!r}"[:60]
    return "an object" if isinstance(value, dict) else "a list"
