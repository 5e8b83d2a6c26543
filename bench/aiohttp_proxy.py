"""The named alternative to our router: the shortest streaming proxy that aiohttp allows.

    python -m bench.aiohttp_proxy PORT ENGINE_URL

It reads `model` from the body, as a router must, and passes everything else through.
"""

from __future__ import annotations

import json
import sys

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

SESSION = web.AppKey("session", ClientSession)


async def proxy(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    if "model" not in json.loads(body):
        raise web.HTTPBadRequest
    async with request.app[SESSION].post(
        sys.argv[2] + request.path, data=body, headers={"content-type": "application/json"}
    ) as upstream:
        response = web.StreamResponse(
            status=upstream.status, headers={"content-type": upstream.content_type}
        )
        await response.prepare(request)
        async for chunk in upstream.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response


async def application() -> web.Application:
    app = web.Application()
    app[SESSION] = ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None))
    app.router.add_post("/{path:.*}", proxy)
    return app


if __name__ == "__main__":
    web.run_app(application(), host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
