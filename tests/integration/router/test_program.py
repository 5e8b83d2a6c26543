"""A whole router on a store: what it reads, what it survives, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ha.clock import BootClock
from ha.memory import MemoryStore
from ha.store import Delete, Put, UnavailableError
from llmgw.domain.catalog import Head, Model, Profile, document_bytes, document_hash
from llmgw.kit.journal import Journal
from llmgw.router.program import RouterOptions, serve
from llmgw.router.server import open_listener
from llmgw.wire.keys import Keys
from tests.integration.router.harness import (
    LIMITS,
    Arrival,
    Client,
    Router,
    ask,
    chat,
    fetch,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable
    from pathlib import Path

    from ha.store import Listing, Store
    from llmgw.domain.endpoint import Endpoint
    from tests.integration.router.conftest import StartEngine

KEYS = Keys("test")
TIMEOUT_S = 1.0


class DeadStore(MemoryStore):
    """etcd that nobody can reach."""

    async def list(self, prefix: str, *, timeout_s: float) -> Listing:
        raise UnavailableError(f"{prefix}: no connection within {timeout_s} s")


@dataclass
class Running:
    """A router, its outside and its ends."""

    router: Router
    stop: asyncio.Event
    serving: asyncio.Task[None]


@contextlib.asynccontextmanager
async def running_program(
    store: Store, state_dir: Path, *, grace_s: int = 1, journal: Path | None = None
) -> AsyncGenerator[Running, None]:
    listener = open_listener("127.0.0.1", 0)
    port = listener.getsockname()[1]
    stop = asyncio.Event()
    options = RouterOptions(KEYS, state_dir, LIMITS, 1 << 20, grace_s=grace_s)
    serving = asyncio.create_task(
        serve(
            options,
            store=store,
            clock=BootClock(),
            journal=Journal(journal),
            listener=listener,
            stop=stop,
        )
    )
    # The application stays inside; tests look at it through its socket, as clients do.
    running = Running(Router(None, port), stop, serving)  # type: ignore[arg-type]
    try:
        yield running
    finally:
        stop.set()
        await serving


async def write_catalog(store: Store, *models: Model) -> None:
    documents = [document_bytes(model) for model in models]
    hashes = [document_hash(document) for document in documents]
    names = [model.name for model in models]
    head = Head(models=dict(zip(names, hashes, strict=True)))
    writes = [
        Put(KEYS.catalog_document(digest), document)
        for digest, document in zip(hashes, documents, strict=True)
    ]
    writes.append(Put(KEYS.catalog_head, head.model_dump_json().encode()))
    await store.txn([], writes, timeout_s=TIMEOUT_S)


async def write_endpoints(store: Store, endpoints: Iterable[Endpoint]) -> None:
    writes = [
        Put(KEYS.endpoint(endpoint.replica_id), endpoint.model_dump_json().encode())
        for endpoint in endpoints
    ]
    await store.txn([], writes, timeout_s=TIMEOUT_S)


def model(name: str, *aliases: str) -> Model:
    return Model(name=name, aliases=list(aliases), profiles=[Profile(name="p", engine="command")])


async def status(router: Router, name: str) -> int:
    return (await ask(router, chat(model=name))).status


async def wait_status(router: Router, name: str, wanted: int) -> None:
    async with asyncio.timeout(5):
        while (got := await status(router, name)) != wanted:
            assert got in {200, 404, 503}
            await asyncio.sleep(0.01)


async def test_the_table_follows_the_store(start_engine: StartEngine, tmp_path: Path) -> None:
    store = MemoryStore(BootClock())
    engine = await start_engine()
    async with running_program(store, tmp_path) as running:
        router = running.router
        await wait_status(router, "org/m", 404)
        await write_catalog(store, model("org/m", "alias"), model("org/m-2"))
        await wait_status(router, "org/m", 503)
        await write_endpoints(
            store,
            [
                engine.endpoint("a", model="org/m", aliases=("alias",)),
                engine.endpoint("ab", model="org/m-2"),
            ],
        )
        await wait_status(router, "alias", 200)
        await wait_status(router, "org/m-2", 200)
        await store.txn([], [Delete(KEYS.endpoint("a"))], timeout_s=TIMEOUT_S)
        await wait_status(router, "org/m", 503)
        assert await status(router, "org/m-2") == 200
        await write_catalog(store, model("org/m-2"))
        await wait_status(router, "alias", 404)
        assert await status(router, "org/m-2") == 200


async def test_a_damaged_catalog_leaves_the_last_good_one_in_force(
    start_engine: StartEngine, tmp_path: Path
) -> None:
    store = MemoryStore(BootClock())
    engine, other = await start_engine(), await start_engine()
    await write_catalog(store, model("m", "alias"))
    await write_endpoints(store, [engine.endpoint("a")])
    async with running_program(store, tmp_path) as running:
        router = running.router
        await wait_status(router, "alias", 200)
        for damage in (
            Put(KEYS.catalog_head, b"{"),
            Put(KEYS.catalog_head, b'{"models": {"m": "nothing"}}'),
            Put(KEYS.catalog_head, b'{"models": {}}'),
            Delete(KEYS.catalog_head),
        ):
            await store.txn([], [damage], timeout_s=TIMEOUT_S)
            await store.txn([], [Delete(KEYS.endpoint("a"))], timeout_s=TIMEOUT_S)
            await wait_status(router, "alias", 503)
            await write_endpoints(store, [other.endpoint("a")])
            await wait_status(router, "alias", 200)
        await store.txn([], [Put(KEYS.endpoint("b"), b"[]")], timeout_s=TIMEOUT_S)
        await write_catalog(store, model("m", "renamed"))
        await wait_status(router, "renamed", 200)


async def test_without_etcd_it_boots_from_disk_and_serves_for_ever(
    start_engine: StartEngine, tmp_path: Path
) -> None:
    store = MemoryStore(BootClock())
    engine = await start_engine()
    await write_catalog(store, model("m", "alias"))
    await write_endpoints(store, [engine.endpoint("a", served_model_name="served")])
    async with running_program(store, tmp_path) as running:
        await wait_status(running.router, "alias", 200)
    async with running_program(DeadStore(BootClock()), tmp_path) as running:
        router = running.router
        assert (await fetch(router, "/readyz")).status == 200
        answer = await ask(router, chat(model="alias"))
        assert (answer.status, answer.json["model"]) == (200, "alias")
        assert engine.arrivals[-1].json["model"] == "served"
        listed = (await fetch(router, "/v1/models")).json["data"]
        assert [item["id"] for item in listed] == ["alias", "m"]
    copy = tmp_path / "routes.signed"
    copy.write_bytes(copy.read_bytes().replace(b"alias", b"other"))
    async with running_program(DeadStore(BootClock()), tmp_path) as running:
        assert (await fetch(running.router, "/readyz")).status == 503
        assert (await fetch(running.router, "/healthz")).status == 200


async def test_the_copy_on_disk_is_written_while_running(
    start_engine: StartEngine, tmp_path: Path
) -> None:
    store = MemoryStore(BootClock())
    engine = await start_engine()
    await write_catalog(store, model("m"))
    await write_endpoints(store, [engine.endpoint("a")])
    async with running_program(store, tmp_path):
        copy = tmp_path / "routes.signed"
        await until(lambda: copy.exists() and b'"a"' in copy.read_bytes(), "the copy is written")
        await store.txn([], [Delete(KEYS.endpoint("a"))], timeout_s=TIMEOUT_S)
        await until(lambda: b'"a"' not in copy.read_bytes(), "the copy is written again")


async def test_at_the_end_streams_are_finished_and_nothing_new_is_accepted(
    start_engine: StartEngine, tmp_path: Path
) -> None:
    release = asyncio.Event()

    async def hold(arrival: Arrival) -> None:
        arrival.start_events()
        arrival.event("one")
        await release.wait()
        arrival.chunk(b"data: [DONE]\n\n")
        arrival.chunk(b"")

    store = MemoryStore(BootClock())
    engine = await start_engine(hold)
    await write_catalog(store, model("m"))
    await write_endpoints(store, [engine.endpoint("a")])
    async with running_program(store, tmp_path, grace_s=5) as running:
        client = await _stream(running.router)
        running.stop.set()
        await _until_refused(running.router)
        release.set()
        assert await client.chunk() == b"data: [DONE]\n\n"
        assert await client.chunk() == b""
        client.close()
        async with asyncio.timeout(2):
            await running.serving


async def test_a_stream_that_outlasts_the_grace_is_told_so(
    start_engine: StartEngine, tmp_path: Path
) -> None:
    async def hold(arrival: Arrival) -> None:
        arrival.start_events()
        arrival.event("one")
        await asyncio.Event().wait()

    store = MemoryStore(BootClock())
    engine = await start_engine(hold)
    await write_catalog(store, model("m"))
    await write_endpoints(store, [engine.endpoint("a")])
    journal = tmp_path / "journal"
    async with running_program(store, tmp_path, grace_s=1, journal=journal) as running:
        client = await _stream(running.router)
        running.stop.set()
        error = await client.chunk()
        assert b"shutting down" in error
        assert error.endswith(b"data: [DONE]\n\n")
        await until(engine.arrivals[0].closed.is_set, "the engine is left")
        client.close()
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [(record["event"], record["model"], record["code"]) for record in records] == [
        ("request", "m", 200)
    ]
    assert (records[0]["endpoint"], records[0]["outcome"]) == ("a", "shutting_down")


async def test_a_second_signal_ends_at_once(start_engine: StartEngine, tmp_path: Path) -> None:
    async def hold(arrival: Arrival) -> None:
        arrival.start_events()
        arrival.event("one")
        await asyncio.Event().wait()

    store = MemoryStore(BootClock())
    engine = await start_engine(hold)
    await write_catalog(store, model("m"))
    await write_endpoints(store, [engine.endpoint("a")])
    async with running_program(store, tmp_path, grace_s=30) as running:
        client = await _stream(running.router)
        running.stop.set()
        await _until_refused(running.router)
        running.stop.set()
        async with asyncio.timeout(3):
            await running.serving
        client.close()


async def _stream(router: Router) -> Client:
    await until_routed(router)
    client = await Client.connect(router)
    client.post(chat(stream=True))
    await client.head()
    assert b"one" in await client.chunk()
    return client


async def until_routed(router: Router) -> None:
    async with asyncio.timeout(5):
        while (got := (await fetch(router, "/v1/models/m")).status) != 200:
            assert got in {404, 503}
            await asyncio.sleep(0.01)


async def _until_refused(router: Router) -> None:
    async with asyncio.timeout(5):
        while True:
            try:
                client = await Client.connect(router)
            except ConnectionError:
                return
            client.close()
            await asyncio.sleep(0.01)
