"""Asking an engine over HTTP how it is; every question is a connection of its own.

Idle connections of the agent would look like requests in flight to a drain, so none is kept.
"""

from __future__ import annotations

import asyncio
import socket

import aiohttp

PROBE_TIMEOUT_S = 2.0


async def http_status(url: str) -> int | None:
    """The status of a GET; None when nothing answers within `PROBE_TIMEOUT_S`."""
    timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
    connector = aiohttp.TCPConnector(force_close=True)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            return response.status
    except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, OSError):
        return None


def port_problem(address: str, port: int) -> str | None:
    """Why an engine could not listen there; None when it could."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        # Connections of an engine that just ended linger; they do not take the port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
            listener.listen(1)
        except OSError as error:
            return error.strerror or str(error)
    return None


def base_url(address: str, port: int) -> str:
    """`http://address:port`, with a bare IPv6 address in brackets."""
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}"
