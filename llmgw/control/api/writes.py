"""What only the leader does: change the catalog, resign. Others name the leader."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from ha.elector import NotLeaderError, Role
from ha.store import StoreError
from llmgw.control.api.errors import ApiError
from llmgw.control.core.catalog_change import ModelNotFoundError
from llmgw.control.errors import ConflictError
from llmgw.control.plane import leader_view
from llmgw.domain.catalog import CatalogError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from llmgw.control.catalog import Applied, CatalogWriter
    from llmgw.control.plane import ControlPlane


T = TypeVar("T", bound=BaseModel)


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Apply(_Request):
    models: list[Any]
    expected_revision: int | None = None
    prune: bool = False
    who: str = ""


class _Delete(_Request):
    names: list[str]
    expected_revision: int | None = None
    who: str = ""


class _Resign(_Request):
    reason: str = "asked by an operator"


def add_routes(app: web.Application, plane: ControlPlane) -> None:
    """Add every write."""
    handlers = _Writes(plane)
    app.router.add_post("/v1/catalog/apply", handlers.apply)
    app.router.add_post("/v1/catalog/delete", handlers.delete)
    app.router.add_post("/v1/leader/resign", handlers.resign)


class _Writes:
    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._changing = asyncio.Lock()

    async def apply(self, request: web.Request) -> web.Response:
        asked = await _body(request, _Apply)
        writer = self._writer()
        return await self._change(
            writer.apply(
                asked.models,
                prune=asked.prune,
                who=asked.who,
                expected_revision=asked.expected_revision,
            )
        )

    async def delete(self, request: web.Request) -> web.Response:
        asked = await _body(request, _Delete)
        writer = self._writer()
        return await self._change(
            writer.delete(asked.names, who=asked.who, expected_revision=asked.expected_revision)
        )

    async def resign(self, request: web.Request) -> web.Response:
        asked = await _body(request, _Resign)
        self._writer()
        term = self._plane.elector.term
        await self._plane.leader.resign(asked.reason)
        return web.json_response({"id": self._plane.id, "term": term})

    def _writer(self) -> CatalogWriter:
        writer = self._plane.catalog_writer()
        if writer is None:
            raise self._not_leader()
        return writer

    def _not_leader(self) -> ApiError:
        if self._plane.elector.role is Role.FROZEN:
            return ApiError(503, "frozen", f"{self._plane.id} is not sure of its lease; try again")
        leader = self._plane.elector.leader
        if leader is not None and leader.id == self._plane.id:
            return ApiError(503, "starting", f"{self._plane.id} is starting to lead; try again")
        name = leader.id if leader is not None else "nobody"
        message = f"{self._plane.id} does not lead; {name} does"
        return ApiError(421, "not_leader", message, leader=leader_view(leader))

    async def _change(self, work: Awaitable[Applied]) -> web.Response:
        try:
            async with self._changing:
                applied = await work
        except CatalogError as error:
            problems = [{"path": list(p.path), "reason": p.reason} for p in error.problems]
            raise ApiError(422, "invalid", str(error), problems=problems) from error
        except ModelNotFoundError as error:
            raise ApiError(404, "model_not_found", str(error), names=list(error.names)) from error
        except ConflictError as error:
            raise ApiError(409, "conflict", str(error), revision=error.revision) from error
        except NotLeaderError as error:
            raise self._not_leader() from error
        except StoreError as error:
            raise ApiError(503, "store_unavailable", f"etcd: {error}") from error
        change = applied.change
        return web.json_response(
            {
                "revision": applied.revision,
                "added": list(change.added),
                "changed": list(change.changed),
                "removed": list(change.removed),
                "unchanged": list(change.unchanged),
            }
        )


async def _body(request: web.Request, kind: type[T]) -> T:
    raw = await request.read()
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "bad_json", f"the body is not JSON: {error}") from error
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in found["loc"]) or "body"
        raise ApiError(400, "bad_request", f"{where}: {found['msg']}") from error
