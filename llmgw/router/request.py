"""Understands a client's request: which model it asks for, and what an engine is to be sent.

Small JSON bodies are parsed; large ones are scanned in parts, between which others have their turn.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from llmgw.router.core.multipart import read_form, rename_form
from llmgw.router.core.naming import BodyError, read_json, rename_json, rename_places
from llmgw.router.core.scan import scan_json
from llmgw.router.errors import RequestError
from llmgw.router.headers import for_engine

if TYPE_CHECKING:
    from llmgw.router.asgi import Headers
    from llmgw.router.core.naming import Asked
    from llmgw.router.endpoints import EndpointState

_FORM = "multipart/form-data"
PARSED_BYTES_MAX = 65_536


async def read_request(path: str, query: bytes, headers: Headers, body: bytes) -> Request:
    """What a client's POST asks for.

    Raises:
        RequestError: 400 or 415; the body names no model.
    """
    content_type = _header(headers, b"content-type")
    encoding = _header(headers, b"content-encoding").lower()
    if encoding not in {"", "identity"}:
        message = f"A body with content-encoding {encoding!r} cannot be read; send it plain."
        raise RequestError(415, message, code="unsupported_encoding")
    is_form = content_type.lower().startswith(_FORM)
    try:
        if is_form:
            asked = read_form(content_type, body)
        elif len(body) <= PARSED_BYTES_MAX:
            asked = read_json(body)
        else:
            asked = await _scanned(body)
    except BodyError as error:
        message = f"Invalid request: {error}."
        raise RequestError(400, message, code="invalid_body", param=error.param) from error
    target = path.encode() + (b"?" + query if query else b"")
    return Request(target, headers, body, asked, form=content_type if is_form else "")


async def _scanned(body: bytes) -> Asked:
    scan = scan_json(body)
    while True:
        try:
            next(scan)
        except StopIteration as done:
            return cast("Asked", done.value)
        await asyncio.sleep(0)


class Request:
    """A POST whose body names a model. `form`: its content type, if it is a form."""

    def __init__(
        self, target: bytes, headers: Headers, body: bytes, asked: Asked, *, form: str
    ) -> None:
        self.asked = asked
        self._target = target
        self._headers = headers
        self._body = body
        self._form = form

    def for_endpoint(self, state: EndpointState, request_id: bytes) -> tuple[bytes, bytes]:
        """Head and body for one engine, with the model's name as that engine knows it."""
        served = state.endpoint.served_model_name
        body = self._body
        if served != self.asked.model:
            if self._form:
                body = rename_form(self._form, body, served)
            elif self.asked.places:
                body = rename_places(body, self.asked.places, served)
            else:
                body = rename_json(body, served)
        lines = [
            b"POST %b%b HTTP/1.1\r\nhost: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n"
            % (state.path_prefix, self._target, state.authority, len(body), request_id)
        ]
        lines += [b"%b: %b\r\n" % header for header in for_engine(self._headers)]
        lines.append(b"\r\n")
        return b"".join(lines), body


def _header(headers: Headers, wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == wanted), "")
