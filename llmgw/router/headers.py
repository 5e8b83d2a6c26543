"""Which headers pass the router, in either direction, and which request ids are taken over."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# The router writes these itself. No cookies, and no compression: events must be readable here.
_NOT_TO_ENGINE = _HOP_BY_HOP | {
    b"accept-encoding",
    b"content-length",
    b"cookie",
    b"expect",
    b"host",
    b"x-request-id",
}
_NOT_TO_CLIENT = _HOP_BY_HOP | {
    b"content-length",
    b"date",
    b"server",
    b"set-cookie",
    b"x-request-id",
}
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


def for_engine(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The client's headers that the engine gets."""
    return _passing(headers, _NOT_TO_ENGINE)


def for_client(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The engine's headers that the client gets; the length is set where it is known."""
    return _passing(headers, _NOT_TO_CLIENT)


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The client's `X-Request-Id` if it is one, else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value
    return secrets.token_hex(16).encode()


def _passing(
    headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes]
) -> list[tuple[bytes, bytes]]:
    passing = []
    named: set[bytes] = set()
    for header in headers:
        if header[0] not in dropped:
            passing.append(header)
        elif header[0] == b"connection":
            named |= {token.strip().lower() for token in header[1].split(b",")}
    if named:
        passing = [header for header in passing if header[0] not in named]
    return passing
