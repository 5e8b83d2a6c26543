"""The admin API over real HTTP: the contract that the operator's tool relies on."""

from __future__ import annotations

import contextlib
import io
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from ha.clock import BootClock
from ha.memory import MemoryStore
from ha.store import Delete, Put
from tests.support.control import WAIT_S, Agent, CuttableStore, Running, agents, running_plane
from tests.support.fleet import model
from tests.support.virtual import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ha.store import Listing, Write

HEAD = "/llmgw/test/catalog/head"
M = model(aliases=["x"]).model_dump(mode="json")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(BootClock())


class Client:
    """Asks one control plane."""

    def __init__(self, session: aiohttp.ClientSession, admin: str) -> None:
        self._session = session
        self._admin = admin

    async def get(self, path: str) -> tuple[int, Any]:
        async with self._session.get(f"http://{self._admin}{path}") as response:
            return response.status, await response.json()

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        return await self.post_raw(path, json.dumps(body).encode())

    async def post_raw(self, path: str, body: bytes) -> tuple[int, Any]:
        async with self._session.post(
            f"http://{self._admin}{path}", data=io.BytesIO(body)
        ) as response:
            return response.status, await response.json()

    async def metrics(self) -> str:
        async with self._session.get(f"http://{self._admin}/metrics") as response:
            return await response.text()


@contextlib.asynccontextmanager
async def client(running: Running) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(session, running.admin)


async def test_apply_get_and_delete(store: MemoryStore, tmp_path: Path) -> None:
    async with running_plane(store, tmp_path) as running, client(running) as admin:
        await running.leads()
        status, applied = await admin.post("/v1/catalog/apply", {"models": [M], "who": "me"})
        assert status == 200
        assert applied["added"] == ["m"]
        await until(lambda: running.plane.view.catalog is not None
                    and bool(running.plane.view.catalog.models), within_s=WAIT_S)  # fmt: skip
        status, catalog = await admin.get("/v1/catalog")
        assert status == 200
        assert (catalog["revision"], catalog["who"]) == (applied["revision"], "me")
        assert catalog["models"] == [M]
        status, again = await admin.post("/v1/catalog/apply", {"models": [M]})
        assert (again["unchanged"], again["revision"]) == (["m"], applied["revision"])
        status, deleted = await admin.post("/v1/catalog/delete", {"names": ["m"]})
        assert (status, deleted["removed"]) == (200, ["m"])
        status, error = await admin.post("/v1/catalog/delete", {"names": ["m"]})
        assert (status, error["error"]["code"]) == (404, "model_not_found")


async def test_a_catalog_that_changed_meanwhile_is_not_overwritten(
    store: MemoryStore, tmp_path: Path
) -> None:
    async with running_plane(store, tmp_path) as running, client(running) as admin:
        await running.leads()
        _, applied = await admin.post("/v1/catalog/apply", {"models": [M], "expected_revision": 0})
        body = {"models": [M | {"weight": 2}], "expected_revision": 0}
        status, error = await admin.post("/v1/catalog/apply", body)
        assert (status, error["error"]["code"]) == (409, "conflict")
        assert error["error"]["revision"] == applied["revision"]


async def test_two_changes_at_once_are_both_in_force(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between reading and swapping somebody else swaps: the change is computed anew, not lost."""
    async with running_plane(store, tmp_path) as running, client(running) as admin:
        await running.leads()
        other = running.plane.catalog_writer()
        assert other is not None
        real_list, meanwhile = store.list, [model("other").model_dump(mode="json")]

        async def list_(prefix: str, *, timeout_s: float) -> Listing:
            listing = await real_list(prefix, timeout_s=timeout_s)
            if prefix.endswith("catalog/") and meanwhile:
                raw = [meanwhile.pop()]
                await other.apply(raw, prune=False, who="other", expected_revision=None)
            return listing

        monkeypatch.setattr(store, "list", list_)
        status, _ = await admin.post("/v1/catalog/apply", {"models": [M]})
        assert status == 200
        await until(lambda: set(running.plane.view.head.models) == {"m", "other"}, within_s=WAIT_S)


async def test_an_invalid_catalog_names_every_field(store: MemoryStore, tmp_path: Path) -> None:
    async with running_plane(store, tmp_path) as running, client(running) as admin:
        await running.leads()
        await admin.post("/v1/catalog/apply", {"models": [M]})
        other = model("other").model_dump(mode="json")
        body = {"models": [other | {"aliases": ["x"]}, other | {"name": 5}]}
        status, error = await admin.post("/v1/catalog/apply", body)
        assert (status, error["error"]["code"]) == (422, "invalid")
        assert [problem["path"] for problem in error["error"]["problems"]] == [
            ["models", 1, "name"]
        ]
        status, error = await admin.post(
            "/v1/catalog/apply", {"models": [other | {"aliases": ["x"]}]}
        )
        assert error["error"]["problems"][0]["path"] == ["models", 0, "aliases", 0]
        assert "'m'" in error["error"]["problems"][0]["reason"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "body"),
        (b'{"models": 5}', "models"),
        (b'{"models": [], "prune": "yes"}', "prune"),
        (b'{"models": [], "surprise": 1}', "surprise"),
    ],
)
async def test_a_bad_body_is_a_clear_400(
    store: MemoryStore, tmp_path: Path, body: bytes, says: str
) -> None:
    async with running_plane(store, tmp_path) as running, client(running) as admin:
        await running.leads()
        status, error = await admin.post_raw("/v1/catalog/apply", body)
        assert status == 400
        assert says in error["error"]["message"]


async def test_a_body_without_end_and_an_unknown_path_are_json_errors(
    store: MemoryStore, tmp_path: Path
) -> None:
    async with running_plane(store, tmp_path) as running, client(running) as admin:
        status, error = await admin.post_raw("/v1/catalog/apply", b" " * (17 << 20))
        assert (status, error["error"]["code"]) == (413, "body_too_large")
        status, error = await admin.get("/nowhere")
        assert (status, error["error"]["code"]) == (404, "not_found")
        status, error = await admin.get("/v1/catalog/apply")
        assert (status, error["error"]["code"]) == (405, "method_not_allowed")


async def test_a_standby_answers_reads_and_names_the_leader_for_writes(
    store: MemoryStore, tmp_path: Path
) -> None:
    agent = Agent()
    async with running_plane(store, tmp_path, "cp1") as first, agents(agent):
        await first.leads()
        async with (
            running_plane(store, tmp_path, "cp2") as second,
            client(second) as standby,
            client(first) as leader,
        ):
            await until(
                lambda: (
                    second.plane.elector.leader is not None
                    and len(second.plane.candidates.items) == 2
                ),
                within_s=WAIT_S,
            )
            status, error = await standby.post("/v1/catalog/apply", {"models": [M]})
            assert (status, error["error"]["code"]) == (421, "not_leader")
            assert error["error"]["leader"]["admin_address"] == first.admin
            status, error = await standby.post("/v1/leader/resign", {})
            assert (status, error["error"]["code"]) == (421, "not_leader")
            await leader.post("/v1/catalog/apply", {"models": [M]})
            await agent.attach(first.agents)
            await agent.waits_for(lambda: agent.shards)
            term = first.plane.leader.term
            assert term is not None
            await until(lambda: len(term.publisher.held) == 1, within_s=WAIT_S)
            _, asked = await standby.get("/v1/status")
            assert (asked["id"], asked["role"]) == ("cp2", "standby")
            assert asked["leader"]["id"] == "cp1"
            assert [(c["id"], c["role"]) for c in asked["control_planes"]] == [
                ("cp1", "leading"),
                ("cp2", "standby"),
            ]
            assert asked["agents"][0]["node_id"] == "node-a"
            assert asked["replicas"][0]["state"] == "ready"
            assert asked["replicas"][0]["endpoint"].startswith("http://")
            assert asked["models"] == [
                {"name": "m", "aliases": ["x"], "replicas_wanted": 1, "replicas_ready": 1,
                 "reason": ""}
            ]  # fmt: skip
            for name in ("replicas", "models"):
                assert await standby.get(f"/v1/{name}") == (200, {name: asked[name]})
            _, nodes = await standby.get("/v1/nodes")
            assert [node["node_id"] for node in nodes["nodes"]] == ["node-a"]


async def test_without_a_leader_what_only_it_knows_is_null(
    store: MemoryStore, tmp_path: Path
) -> None:
    async with running_plane(store, tmp_path) as running, client(running) as admin:
        await running.leads()
        status, resigned = await admin.post("/v1/leader/resign", {"reason": "a test"})
        assert (status, resigned) == (200, {"id": "cp1", "term": 1})
        await until(lambda: running.plane.leader.term is None, within_s=WAIT_S)
        _, asked = await admin.get("/v1/status")
        assert asked["role"] == "standby"
        assert (asked["agents"], asked["models"], asked["settling"]) == (None, None, None)
        status, error = await admin.get("/v1/models")
        assert (status, error["error"]["code"]) == (503, "no_leader")


async def test_a_frozen_leader_takes_no_writes(store: MemoryStore, tmp_path: Path) -> None:
    link = CuttableStore(store)
    async with running_plane(link, tmp_path) as running, client(running) as admin:
        await running.leads()
        link.cut()
        await until(lambda: running.plane.elector.role == "frozen", within_s=WAIT_S)
        status, error = await admin.post("/v1/catalog/apply", {"models": [M]})
        assert (status, error["error"]["code"]) == (503, "frozen")
        _, asked = await admin.get("/v1/status")
        assert any("frozen" in problem for problem in asked["problems"])


async def test_a_damaged_catalog_leaves_the_last_good_one_and_is_named(
    store: MemoryStore, tmp_path: Path
) -> None:
    agent = Agent()
    async with running_plane(store, tmp_path) as running, client(running) as admin, agents(agent):
        await running.leads()
        _, applied = await admin.post("/v1/catalog/apply", {"models": [M]})
        await agent.attach(running.agents)
        await agent.waits_for(lambda: agent.shards)
        await store.txn([], [Put(HEAD, b'{"models": {"m": "00"}}')], timeout_s=1)
        await until(lambda: running.plane.view.problem != "", within_s=WAIT_S)
        _, asked = await admin.get("/v1/status")
        assert any("catalog/docs/00" in problem for problem in asked["problems"])
        assert asked["catalog_revision"] == applied["revision"]
        assert "llmgw_catalog_invalid 1.0" in await admin.metrics()
        assert len(agent.commands) == 1
        # An apply repairs it, from the last good catalog.
        other = model("other").model_dump(mode="json")
        status, _ = await admin.post("/v1/catalog/apply", {"models": [other]})
        assert status == 200
        await until(lambda: running.plane.view.problem == "", within_s=WAIT_S)
        catalog = running.plane.view.catalog
        assert catalog is not None
        assert set(catalog.models) == {"m", "other"}


@pytest.mark.parametrize("damage", [Delete(HEAD), Put(HEAD, b'{"models": {}}')])
async def test_all_models_gone_at_once_stop_nothing_until_somebody_deletes_them(
    store: MemoryStore, tmp_path: Path, damage: Write
) -> None:
    agent = Agent()
    async with running_plane(store, tmp_path) as running, client(running) as admin, agents(agent):
        await running.leads()
        await admin.post("/v1/catalog/apply", {"models": [M]})
        await agent.attach(running.agents)
        await agent.waits_for(lambda: agent.shards)
        await store.txn([], [damage], timeout_s=1)
        await until(lambda: running.plane.view.problem != "", within_s=WAIT_S)
        assert HEAD in running.plane.view.problem
        # The same file again changes nothing, and repairs it.
        status, _ = await admin.post("/v1/catalog/apply", {"models": [M]})
        assert status == 200
        await until(lambda: running.plane.view.problem == "", within_s=WAIT_S)
        assert len(agent.commands) == 1
        status, _ = await admin.post("/v1/catalog/delete", {"names": ["m"]})
        assert status == 200
        await agent.waits_for(lambda: not agent.shards)
        assert running.plane.view.problem == ""


async def test_a_catalog_that_vanished_leaves_the_last_good_one(
    store: MemoryStore, tmp_path: Path
) -> None:
    """An etcd that was wiped, or started on the wrong data: no model was removed on purpose."""
    agent = Agent()
    async with running_plane(store, tmp_path) as running, client(running) as admin, agents(agent):
        await running.leads()
        _, applied = await admin.post("/v1/catalog/apply", {"models": [M]})
        await agent.attach(running.agents)
        await agent.waits_for(lambda: agent.shards)
        listing = await store.list(HEAD.removesuffix("head"), timeout_s=1)
        await store.txn([], [Delete(item.key) for item in listing.items], timeout_s=1)
        await until(lambda: running.plane.view.problem != "", within_s=WAIT_S)
        _, asked = await admin.get("/v1/status")
        assert any(f"{HEAD}: the head is missing" in problem for problem in asked["problems"])
        assert asked["catalog_revision"] == applied["revision"]
        assert len(agent.commands) == 1
        # An apply repairs it, from the last good catalog, with all its documents.
        other = model("other").model_dump(mode="json")
        status, _ = await admin.post("/v1/catalog/apply", {"models": [other]})
        assert status == 200
        await until(lambda: running.plane.view.problem == "", within_s=WAIT_S)
        catalog = running.plane.view.catalog
        assert catalog is not None
        assert set(catalog.models) == {"m", "other"}


@pytest.mark.parametrize("damage", [Put(HEAD, b'{"models": {"m": "00"}}'), Delete(HEAD)])
async def test_the_same_models_again_repair_a_catalog(
    damage: Put | Delete, store: MemoryStore, tmp_path: Path
) -> None:
    """Nothing changes, and yet it has to be written."""
    async with running_plane(store, tmp_path) as running, client(running) as admin:
        await running.leads()
        await admin.post("/v1/catalog/apply", {"models": [M]})
        await store.txn([], [damage], timeout_s=1)
        await until(lambda: running.plane.view.problem != "", within_s=WAIT_S)
        status, applied = await admin.post("/v1/catalog/apply", {"models": [M]})
        assert (status, applied["unchanged"]) == (200, ["m"])
        await until(lambda: running.plane.view.problem == "", within_s=WAIT_S)
        assert running.plane.view.catalog is not None
        assert running.plane.view.catalog.revision == applied["revision"]


async def test_a_leader_without_a_good_catalog_touches_nothing(
    store: MemoryStore, tmp_path: Path
) -> None:
    """The head is damaged from the start: what runs goes on, and stays published."""
    agent = Agent()
    async with running_plane(store, tmp_path, "cp1") as first, client(first) as admin:
        await first.leads()
        await admin.post("/v1/catalog/apply", {"models": [M]})
        async with agents(agent):
            await agent.attach(first.agents)
            await agent.waits_for(lambda: agent.shards)
            term = first.plane.leader.term
            assert term is not None
            held = term.publisher.held
            await until(lambda: len(held) == 1, within_s=WAIT_S)
        await first.plane.leader.resign("test")
    await store.txn([], [Put(HEAD, b"{")], timeout_s=1)
    async with running_plane(store, tmp_path, "cp2") as second, agents(agent):
        await second.leads()
        await agent.attach(second.agents)
        second_term = second.plane.leader.term
        assert second_term is not None
        await until(lambda: second_term.fleet.nodes["node-a"].open, within_s=WAIT_S)
        await until(lambda: second.plane.view.problem != "", within_s=WAIT_S)
        assert len(agent.commands) == 1
        assert len(second_term.publisher.held) == 1
        # Without a head there is no catalog either, for there is a document: an apply mends it.
        await store.txn([], [Delete(HEAD)], timeout_s=1)
        await until(lambda: "missing" in second.plane.view.problem, within_s=WAIT_S)
        async with client(second) as admin:
            status, _ = await admin.post("/v1/catalog/apply", {"models": [M]})
            assert status == 200
        await until(lambda: second.plane.view.problem == "", within_s=WAIT_S)
        assert len(agent.commands) == 1


async def test_large_catalogs_are_written_in_batches_and_swapped_once(
    store: MemoryStore, tmp_path: Path
) -> None:
    models = [
        model(f"m{number}", args=["x" * 20_000]).model_dump(mode="json") for number in range(150)
    ]
    async with running_plane(store, tmp_path) as running, client(running) as admin:
        await running.leads()
        status, applied = await admin.post("/v1/catalog/apply", {"models": models})
        assert status == 200
        assert len(applied["added"]) == 150
        writes = [record["keys"] for record in running.records("write")]
        assert [keys for keys in writes if HEAD in keys] == [[HEAD]]
        assert writes[-1] == [HEAD]
        assert all(len(keys) <= 128 for keys in writes)


async def test_metrics_and_health(store: MemoryStore, tmp_path: Path) -> None:
    agent = Agent()
    async with running_plane(store, tmp_path) as running, client(running) as admin, agents(agent):
        await running.leads()
        await admin.post("/v1/catalog/apply", {"models": [M]})
        await agent.attach(running.agents)
        await agent.waits_for(lambda: agent.shards)
        term = running.plane.leader.term
        assert term is not None
        await until(lambda: len(term.publisher.held) == 1, within_s=WAIT_S)
        text = await admin.metrics()
        for line in (
            "llmgw_leader 1.0",
            "llmgw_term 1.0",
            "llmgw_agents_connected 1.0",
            'llmgw_replicas{model="m",state="ready"} 1.0',
        ):
            assert line in text
        assert "llmgw_watch_staleness_seconds" in text
        assert "llmgw_catalog_revision" in text
        assert (await admin.get("/healthz"))[0] == 200
        assert (await admin.get("/readyz"))[0] == 200
        status, schema = await admin.get("/v1/schema")
        assert status == 200
        assert "profiles" in schema["properties"]


async def test_a_store_that_is_down_at_the_start_is_waited_for_and_named(
    store: MemoryStore, tmp_path: Path
) -> None:
    link = CuttableStore(store)
    link.cut()
    async with running_plane(link, tmp_path) as running, client(running) as admin:
        await until(lambda: running.plane.elector.problem != "", within_s=WAIT_S)
        status, asked = await admin.get("/v1/status")
        assert status == 200
        assert any("etcd" in problem for problem in asked["problems"])
        assert (await admin.get("/readyz"))[0] == 503
        assert (await admin.get("/v1/catalog"))[0] == 503
        link.mend()
        await running.leads()
        _, asked = await admin.get("/v1/status")
        assert asked["problems"] == []
