"""The admin listener: routes, errors in one JSON form, start and stop."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from llmgw.control.api import reads, writes
from llmgw.control.api.errors import ApiError
from llmgw.control.api.relay import Relay
from llmgw.kit.logs import get_logger

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from llmgw.control.plane import ControlPlane

BODY_BYTES_MAX = 16 << 20
SHUTDOWN_S = 0.5

_log = get_logger(__name__)


class AdminServer:
    """Serves one control plane's admin API."""

    def __init__(self, plane: ControlPlane) -> None:
        self._relay = Relay(plane)
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_errors_as_json])
        reads.add_routes(app, plane, self._relay)
        writes.add_routes(app, plane)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)

    async def start(self, listening: socket.socket) -> None:
        """Serve on a socket that is bound already."""
        await self._runner.setup()
        await web.SockSite(self._runner, listening).start()

    async def stop(self) -> None:
        """Stop listening and close what is open."""
        await self._runner.cleanup()
        await self._relay.close()


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return _error(error.status, error.code, str(error), error.details)
    except web.HTTPRequestEntityTooLarge:
        message = f"the body is larger than {BODY_BYTES_MAX} bytes"
        return _error(413, "body_too_large", message, {})
    except web.HTTPException as error:
        code = (error.reason or "error").lower().replace(" ", "_")
        message = f"{request.method} {request.path}: {error.reason}"
        return _error(error.status, code, message, {})
    except Exception:  # noqa: BLE001 - one failed request must not look like a dead listener
        _log.exception("admin request failed", method=request.method, path=request.path)
        return _error(500, "internal", "this control plane failed; its log says why", {})


def _error(status: int, code: str, message: str, details: dict[str, Any]) -> web.Response:
    document = {"error": {"code": code, "message": message, **details}}
    return web.Response(status=status, text=json.dumps(document), content_type="application/json")
