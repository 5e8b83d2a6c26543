"""One router, put together: store, route table, copy on disk, HTTP server, and down in order.

Serves as soon as the socket listens; what it can serve depends on the route table, which comes
from the disk at once or from etcd when that answers. Neither etcd nor a control plane is ever
needed again once there is one.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.kit.logs import get_logger
from llmgw.kit.tasks import cancel_and_wait
from llmgw.router.app import App
from llmgw.router.server import GRACE_S, make_server
from llmgw.router.snapshot import Snapshot
from llmgw.router.table import RouteTable, TableWatch

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from ha.clock import Clock
    from ha.store import Store
    from llmgw.kit.journal import Journal
    from llmgw.router.exchange import Limits
    from llmgw.router.server import Server
    from llmgw.wire.keys import Keys

_log = get_logger(__name__)
NOTICE_INTERVAL_S = 10.0
NOTICE_FIRST_S = 2.0
LAST_WORDS_S = 1.0


@dataclass(frozen=True, slots=True)
class RouterOptions:
    """What a router is told."""

    keys: Keys
    state_dir: Path
    limits: Limits
    body_bytes_max: int
    grace_s: int = GRACE_S


async def serve(
    options: RouterOptions,
    *,
    store: Store,
    clock: Clock,
    journal: Journal,
    listener: socket.socket,
    stop: asyncio.Event,
) -> None:
    """Route until `stop` is set; a second setting ends without grace."""
    app = App(clock, journal, limits=options.limits, body_bytes_max=options.body_bytes_max)
    snapshot = Snapshot(options.state_dir, options.keys.cluster)

    def on_table(table: RouteTable) -> None:
        if not watched.is_set():
            watched.set()
            _log.info("route table read from etcd", names=len(table.names))
        app.follow(table)
        snapshot.offer(table)

    watched = asyncio.Event()
    watch = TableWatch(store, options.keys, clock, on_table=on_table)
    app.metrics.gauge(
        "llmgw_watch_staleness_seconds",
        "Since the view of etcd was last known to be current.",
        "prefix",
        watch.staleness_s,
    )
    if (table := snapshot.load()) is not None:
        app.follow(table)
    server = make_server(app, grace_s=options.grace_s)
    async with asyncio.TaskGroup() as group:
        background = [
            group.create_task(watch.run()),
            group.create_task(snapshot.run()),
            group.create_task(_notice(app, watch, watched)),
        ]
        serving = group.create_task(server.serve([listener]))
        await _until_stopped(server, serving, stop)
        for task in background:
            await cancel_and_wait(task)
    snapshot.flush()
    app.endpoints.close()


async def _until_stopped(server: Server, serving: asyncio.Task[None], stop: asyncio.Event) -> None:
    await stop.wait()
    stop.clear()
    _log.info("stopping; requests under way are finished first")
    server.stop()
    again = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, again}, return_when=asyncio.FIRST_COMPLETED)
    if not serving.done():
        server.stop_now()
    again.cancel()
    await serving
    if tasks := set(server.server_state.tasks):
        await asyncio.wait(tasks, timeout=LAST_WORDS_S)
    _log.info("stopped")


async def _notice(app: App, watch: TableWatch, watched: asyncio.Event) -> None:
    """Say, until etcd was read once, that it was not."""
    interval_s = NOTICE_FIRST_S
    while not watched.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval_s):
                await watched.wait()
        if not watched.is_set():
            serving = "serving from the copy on disk" if app.ready else "no route table yet"
            reason = watch.endpoints.problem or watch.catalog.problem or "no answer so far"
            _log.warning(f"waiting for etcd; {serving}", reason=reason)
            interval_s = NOTICE_INTERVAL_S
