"""What may be read of any control plane; what only the leader knows is asked of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from llmgw.control import metrics
from llmgw.control.api.errors import ApiError
from llmgw.domain.catalog import model_schema

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from llmgw.control.api.relay import Relay
    from llmgw.control.plane import ControlPlane

_OF_THE_LEADER = ("settling", "agents", "models", "replicas")


def add_routes(app: web.Application, plane: ControlPlane, relay: Relay) -> None:
    """Add every read."""
    handlers = _Reads(plane, relay)
    app.router.add_get("/healthz", handlers.healthz)
    app.router.add_get("/readyz", handlers.readyz)
    app.router.add_get("/metrics", handlers.metrics)
    app.router.add_get("/v1/status", handlers.status)
    app.router.add_get("/v1/nodes", handlers.part("nodes", "agents"))
    app.router.add_get("/v1/replicas", handlers.part("replicas", "replicas"))
    app.router.add_get("/v1/models", handlers.part("models", "models"))
    app.router.add_get("/v1/catalog", handlers.catalog)
    app.router.add_get("/v1/schema", handlers.schema)


class _Reads:
    def __init__(self, plane: ControlPlane, relay: Relay) -> None:
        self._plane = plane
        self._relay = relay

    async def healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def readyz(self, _request: web.Request) -> web.Response:
        if not self._plane.view.watcher.synced:
            raise ApiError(503, "not_ready", "; ".join(self._plane.problems()))
        return web.json_response({"status": "ready"})

    async def metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=metrics.render(self._plane), content_type="text/plain")

    async def status(self, request: web.Request) -> web.Response:
        status = self._plane.status()
        if status["agents"] is None:
            answer = await self._relay.get("/v1/status", request.headers)
            if answer is not None:
                status |= {name: answer.get(name) for name in _OF_THE_LEADER}
                status["problems"] += [
                    problem
                    for problem in answer.get("problems", [])
                    if problem not in status["problems"]
                ]
                self._take_role(status, answer)
        return web.json_response(status)

    def part(self, name: str, field: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """A handler for one list of the leader's."""

        async def handle(request: web.Request) -> web.StreamResponse:
            own = self._plane.fleet_view()
            if own is not None:
                return web.json_response({name: own[field]})
            answer = await self._relay.get(f"/v1/{name}", request.headers)
            if answer is None:
                raise ApiError(503, "no_leader", "no leader can be reached; try again soon")
            return web.json_response(answer)

        return handle

    async def catalog(self, _request: web.Request) -> web.Response:
        catalog = self._plane.view.catalog
        if catalog is None:
            raise ApiError(503, "no_catalog", "; ".join(self._plane.problems()))
        head = self._plane.view.head
        models = [model.model_dump(mode="json") for _, model in sorted(catalog.models.items())]
        return web.json_response(
            {
                "revision": catalog.revision,
                "who": head.who,
                "when": head.when,
                "models": models,
            }
        )

    async def schema(self, _request: web.Request) -> web.Response:
        return web.json_response(model_schema())

    def _take_role(self, status: dict[str, Any], answer: dict[str, Any]) -> None:
        """The leader knows best whether it is frozen."""
        for known in status["control_planes"]:
            if known["id"] == answer.get("id") and known["id"] != self._plane.id:
                known["role"] = answer.get("role", known["role"])
