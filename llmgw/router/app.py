"""The router as an ASGI application: what each path does, and how every request ends.

Every error is answered in the form of OpenAI's API and counted under the catalog's name of the
model, or `other`. Serves from the route table it was given last; who feeds it is not known here.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.kit.logs import get_logger
from llmgw.router.asgi import JSON_TYPE, Client
from llmgw.router.core.ejection import EjectionPolicy
from llmgw.router.endpoints import Endpoints
from llmgw.router.errors import (
    CLIENT_CLOSED_REQUEST,
    ClientLeftError,
    RequestError,
    UpstreamError,
    model_not_found,
    no_table,
    shown,
    shutting_down,
)
from llmgw.router.exchange import Call, Exchange, Limits
from llmgw.router.headers import request_id
from llmgw.router.metrics import CONTENT_TYPE, OTHER, Metrics
from llmgw.router.request import Request
from llmgw.router.routes import Kind, Route, find_route

if TYPE_CHECKING:
    from ha.clock import Clock
    from llmgw.kit.journal import Journal
    from llmgw.router.asgi import Receive, Scope, Send
    from llmgw.router.table import RouteTable

_log = get_logger(__name__)
BODY_BYTES_MAX = 64 << 20
_ENDS_WITH_DONE = frozenset({"/v1/chat/completions", "/v1/completions"})
_SERVER_ERROR = 500


@dataclass(slots=True)
class _Record:
    """What is counted and written down about one request."""

    model: str = OTHER
    endpoint: str = ""
    outcome: str = "ok"
    status: int = 0
    for_engine: bool = False


class App:
    """One router's application."""

    def __init__(
        self,
        clock: Clock,
        journal: Journal,
        *,
        limits: Limits,
        body_bytes_max: int = BODY_BYTES_MAX,
        ejection: EjectionPolicy | None = None,
    ) -> None:
        self.metrics = Metrics()
        self._clock = clock
        self._journal = journal
        self._limits = limits
        self._body_bytes_max = body_bytes_max
        self._table: RouteTable | None = None
        policy = EjectionPolicy() if ejection is None else ejection
        self.endpoints = Endpoints(clock, policy, on_ejected=self.metrics.ejection)
        self.metrics.gauge(
            "llmgw_router_outstanding",
            "Requests under way.",
            "model",
            self.endpoints.outstanding,
        )
        self.metrics.gauge(
            "llmgw_router_endpoints_ejected",
            "Endpoints out of service after consecutive failures.",
            "model",
            self.endpoints.ejected,
        )

    @property
    def ready(self) -> bool:
        """Whether there is a route table."""
        return self._table is not None

    def follow(self, table: RouteTable) -> None:
        """Route by this table from now on."""
        self._table = table
        self.endpoints.follow(table)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise AssertionError(f"cannot serve {scope['type']}")
        client = Client(receive, send, request_id(scope["headers"]))
        record = _Record()
        try:
            await self._serve(scope, client, record)
        except RequestError as error:
            record.outcome = error.code
            await client.answer(error.status, error.body, [JSON_TYPE, *error.headers])
        except ClientLeftError:
            record.outcome, record.status = "client_left", CLIENT_CLOSED_REQUEST
        except UpstreamError as error:
            record.outcome = error.failure.value
            _log.warning("answer broken", **_facts(client, record), reason=str(error))
        except asyncio.CancelledError:
            record.outcome = "shutting_down"
            if not client.begun:
                stop = shutting_down()
                await client.answer(stop.status, stop.body, [JSON_TYPE, *stop.headers])
            raise
        finally:
            self._end(client, record)

    async def _serve(self, scope: Scope, client: Client, record: _Record) -> None:
        route = find_route(scope["path"])
        if route is None:
            message = f"There is no {shown(scope['path'])} here."
            raise RequestError(404, message, code="not_found")
        if scope["method"] not in route.methods:
            allowed = ", ".join(route.methods)
            message = f"{scope['method']} is not allowed here; allowed: {allowed}."
            headers = [(b"allow", allowed.encode())]
            raise RequestError(405, message, code="method_not_allowed", headers=headers)
        if route.kind is Kind.PROXY:
            record.for_engine = True
            await self._proxy(scope, client, record)
        else:
            await self._read(client, route)

    async def _proxy(self, scope: Scope, client: Client, record: _Record) -> None:
        headers = scope["headers"]
        body = await client.read_body(headers, self._body_bytes_max)
        request = Request(scope["path"], scope["query_string"], headers, body)
        asked = request.asked
        if self._table is None:
            raise no_table()
        model = self._table.names.get(asked.model)
        if model is None:
            raise model_not_found(asked.model)
        record.model = model
        call = Call(
            model=model,
            asked=asked.model,
            stream=asked.stream,
            ends_with_done=scope["path"] in _ENDS_WITH_DONE,
            request=lambda state: request.for_endpoint(state, client.request_id),
        )
        exchange = Exchange(
            call,
            client,
            endpoints=self.endpoints,
            limits=self._limits,
            clock=self._clock,
            metrics=self.metrics,
        )
        try:
            await exchange.run()
        finally:
            record.endpoint = exchange.replica_id

    async def _read(self, client: Client, route: Route) -> None:
        if route.kind is Kind.METRICS:
            await client.answer(200, self.metrics.text(), [(b"content-type", CONTENT_TYPE)])
        elif route.kind is Kind.HEALTH:
            await client.answer(200, b'{"status": "alive"}')
        elif self._table is None:
            raise no_table()
        elif route.kind is Kind.READY:
            await client.answer(200, b'{"status": "ready"}')
        elif route.kind is Kind.MODELS:
            listed = [_model(name) for name in sorted(self._table.names)]
            await client.answer(200, json.dumps({"object": "list", "data": listed}).encode())
        elif route.argument in self._table.names:
            await client.answer(200, json.dumps(_model(route.argument)).encode())
        else:
            raise model_not_found(route.argument)

    def _end(self, client: Client, record: _Record) -> None:
        status = record.status or client.status
        self.metrics.request(record.model, status)
        if record.for_engine:
            self._journal.write(
                "request",
                model=record.model,
                code=status,
                endpoint=record.endpoint,
                outcome=record.outcome,
            )
        if status == CLIENT_CLOSED_REQUEST:
            _log.info("client left", **_facts(client, record))
        elif status >= _SERVER_ERROR:
            _log.warning("request failed", **_facts(client, record))


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "llmgw"}


def _facts(client: Client, record: _Record) -> dict[str, object]:
    return {
        "request_id": client.request_id.decode("ascii"),
        "model": record.model,
        "endpoint": record.endpoint,
        "status": record.status or client.status,
        "outcome": record.outcome,
    }
