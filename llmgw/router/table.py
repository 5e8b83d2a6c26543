"""The route table: which names mean which model, and which endpoints serve it.

Made from the catalog and the endpoints as they stand in etcd. The catalog alone decides the
names; only while none was ever readable do the endpoints' own facts stand in, and a catalog that
vanishes or cannot be read leaves the last good one in force. An endpoint that cannot be read is
left out and named in the log. Keeps serving what it has for as long as etcd is away, and when
etcd comes back without its data, until a leader has published anew.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ha.watcher import Watcher
from llmgw.domain.catalog import EMPTY_CATALOG, Catalog, CatalogError
from llmgw.kit.logs import get_logger
from llmgw.wire.documents import fold_catalog, parse_endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ha.clock import Clock
    from ha.store import Store
    from ha.watcher import Item
    from llmgw.domain.endpoint import Endpoint
    from llmgw.wire.keys import Keys

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RouteTable:
    """One state of the routes. `names`: every name and alias to its model's name."""

    names: Mapping[str, str] = field(default_factory=dict)
    endpoints: Mapping[str, tuple[Endpoint, ...]] = field(default_factory=dict)


def make_table(names: Mapping[str, str] | None, endpoints: Iterable[Endpoint]) -> RouteTable:
    """A table of these names (None: no catalog is known) and endpoints."""
    by_model: dict[str, list[Endpoint]] = {}
    for endpoint in sorted(endpoints, key=lambda endpoint: endpoint.replica_id):
        by_model.setdefault(endpoint.model, []).append(endpoint)
    if names is None:
        served = [endpoint for listed in by_model.values() for endpoint in listed]
        names = {alias: endpoint.model for endpoint in served for alias in endpoint.aliases}
        names |= {endpoint.model: endpoint.model for endpoint in served}
    return RouteTable(dict(names), {model: tuple(listed) for model, listed in by_model.items()})


def names_of(catalog: Catalog) -> dict[str, str]:
    """Every name and alias of a catalog, to the model it means."""
    names = {name: name for name in catalog.models}
    for model in catalog.models.values():
        names |= dict.fromkeys(model.aliases, model.name)
    return names


class TableWatch:
    """Keeps a route table current from the store, once both prefixes were read."""

    def __init__(
        self, store: Store, keys: Keys, clock: Clock, *, on_table: Callable[[RouteTable], None]
    ) -> None:
        self._keys = keys
        self._on_table = on_table
        self._known = EMPTY_CATALOG
        self._names: dict[str, str] | None = None
        self._parsed: dict[str, tuple[Item, Endpoint | None]] = {}
        self._revision = 0
        self.catalog = Watcher(store, keys.catalog, clock, on_change=self._on_catalog)
        self.endpoints = Watcher(store, keys.endpoints, clock, on_change=self._on_endpoints)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.catalog.run())
            group.create_task(self.endpoints.run())

    def staleness_s(self) -> Mapping[str, float]:
        """Seconds since each prefix was last known to be current."""
        return {
            "catalog": self.catalog.staleness_s(),
            "endpoints": self.endpoints.staleness_s(),
        }

    def _on_catalog(self, watcher: Watcher) -> None:
        items = {key: item.value for key, item in watcher.items.items()}
        head = watcher.items.get(self._keys.catalog_head)
        try:
            revision = head.mod_revision if head is not None else 0
            catalog = fold_catalog(self._keys, items, revision, self._known)
        except CatalogError as error:
            _log.error("catalog unreadable, the last good one stays in force", reason=str(error))
        else:
            if head is not None:
                self._known, self._names = catalog, names_of(catalog)
        self._publish()

    def _on_endpoints(self, watcher: Watcher) -> None:
        went_back, self._revision = watcher.revision < self._revision, watcher.revision
        if went_back and self._parsed and not watcher.items:
            # A store that lost its data says nothing about engines, which run on.
            _log.error("all endpoints vanished with etcd's data, the last ones stay")
            return
        former, self._parsed = self._parsed, {}
        for key, item in watcher.items.items():
            known = former.get(key)
            if known is not None and known[0] == item:
                self._parsed[key] = known
                continue
            self._parsed[key] = (item, _readable(key, item.value))
        self._publish()

    def _publish(self) -> None:
        if self.catalog.synced and self.endpoints.synced:
            readable = (endpoint for _, endpoint in self._parsed.values() if endpoint is not None)
            self._on_table(make_table(self._names, readable))


def _readable(key: str, value: bytes) -> Endpoint | None:
    try:
        return parse_endpoint(key, value)
    except CatalogError as error:
        _log.error("endpoint unreadable", reason=str(error))
        return None
