"""Understands a client's request: which model it asks for, and what an engine is to be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmgw.router.core.multipart import read_form, rename_form
from llmgw.router.core.naming import BodyError, read_json, rename_json
from llmgw.router.errors import RequestError
from llmgw.router.headers import for_engine

if TYPE_CHECKING:
    from llmgw.router.asgi import Headers
    from llmgw.router.core.naming import Asked
    from llmgw.router.endpoints import EndpointState

_FORM = "multipart/form-data"


class Request:
    """A POST whose body names a model.

    Raises:
        RequestError: 400 or 415; the body names no model.
    """

    def __init__(self, path: str, query: bytes, headers: Headers, body: bytes) -> None:
        self._path = path.encode() + (b"?" + query if query else b"")
        self._headers = headers
        self._body = body
        self._content_type = _header(headers, b"content-type")
        self._is_form = self._content_type.lower().startswith(_FORM)
        encoding = _header(headers, b"content-encoding").lower()
        if encoding not in {"", "identity"}:
            message = f"A body with content-encoding {encoding!r} cannot be read; send it plain."
            raise RequestError(415, message, code="unsupported_encoding")
        try:
            self.asked: Asked = (
                read_form(self._content_type, body) if self._is_form else read_json(body)
            )
        except BodyError as error:
            message = f"Invalid request: {error}."
            raise RequestError(400, message, code="invalid_body", param=error.param) from error

    def for_endpoint(self, state: EndpointState, request_id: bytes) -> tuple[bytes, bytes]:
        """Head and body for one engine, with the model's name as that engine knows it."""
        served = state.endpoint.served_model_name
        body = self._body
        if served != self.asked.model:
            body = (
                rename_form(self._content_type, body, served)
                if self._is_form
                else rename_json(body, served)
            )
        lines = [
            b"POST %b%b HTTP/1.1\r\nhost: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n"
            % (state.path_prefix, self._path, state.authority, len(body), request_id)
        ]
        for name, value in for_engine(self._headers):
            lines.append(b"%b: %b\r\n" % (name, value))
        lines.append(b"\r\n")
        return b"".join(lines), body


def _header(headers: Headers, wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == wanted), "")
