"""Names come from the catalog; endpoints stand in only while there never was one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ha.clock import BootClock
from ha.memory import MemoryStore
from ha.watcher import Item
from llmgw.domain.catalog import Model, Profile, make_catalog
from llmgw.domain.endpoint import Endpoint
from llmgw.router.table import RouteTable, TableWatch, make_table, names_of
from llmgw.wire.keys import Keys

if TYPE_CHECKING:
    from ha.watcher import Watcher


def endpoint(replica_id: str, **facts: Any) -> Endpoint:
    given = {"model": "m", "served_model_name": "m", "engine": "command", "url": "http://h:1"}
    return Endpoint(**(given | {"replica_id": replica_id} | facts))


def model(name: str, *aliases: str) -> Model:
    return Model(name=name, aliases=list(aliases), profiles=[Profile(name="p", engine="command")])


def test_names_and_aliases_lead_to_their_model() -> None:
    catalog = make_catalog(1, [model("org/m", "a", "b"), model("org/m-2")])
    assert names_of(catalog) == {"org/m": "org/m", "a": "org/m", "b": "org/m", "org/m-2": "org/m-2"}


def test_endpoints_are_grouped_by_model_in_a_fixed_order() -> None:
    listed = [endpoint("b"), endpoint("c", model="n"), endpoint("a")]
    table = make_table({"m": "m", "n": "n"}, listed)
    assert [one.replica_id for one in table.endpoints["m"]] == ["a", "b"]
    assert table == make_table({"n": "n", "m": "m"}, reversed(listed))


def test_a_catalog_decides_the_names_alone() -> None:
    table = make_table({"other": "other"}, [endpoint("a", aliases=("alias",))])
    assert dict(table.names) == {"other": "other"}


def test_without_any_catalog_endpoints_speak_for_themselves() -> None:
    table = make_table(None, [endpoint("a", aliases=("alias",)), endpoint("b", model="n")])
    assert dict(table.names) == {"m": "m", "n": "n", "alias": "m"}


def test_an_alias_never_hides_a_models_own_name() -> None:
    table = make_table(None, [endpoint("a", aliases=("n",)), endpoint("b", model="n")])
    assert table.names["n"] == "n"


class Held:
    """What a watcher shows of the endpoints."""

    def __init__(self, revision: int, *endpoints: Endpoint) -> None:
        self.revision = revision
        self.items = {
            f"/{one.replica_id}": Item(one.model_dump_json().encode(), revision, revision)
            for one in endpoints
        }


async def test_a_store_without_its_data_takes_no_endpoint_away() -> None:
    tables: list[RouteTable] = []
    clock = BootClock()
    watch = TableWatch(MemoryStore(clock), Keys("t"), clock, on_table=tables.append)
    watch.catalog.synced = watch.endpoints.synced = True

    def seen(held: Held) -> list[str]:
        watch._on_endpoints(cast("Watcher", held))
        return [one.replica_id for listed in tables[-1].endpoints.values() for one in listed]

    assert seen(Held(9, endpoint("a"))) == ["a"]
    assert seen(Held(2)) == ["a"], "wiped: revisions begin anew"
    assert seen(Held(5, endpoint("b"))) == ["b"], "published anew"
    assert seen(Held(6)) == [], "withdrawn"
