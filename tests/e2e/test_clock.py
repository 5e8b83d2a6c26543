"""A24: the wall clock is stepped by an hour, and nothing happens: it decides nothing.

libfaketime steps the clock of one process at a time, and only the wall clock. Where the library
is not installed (Debian: `libfaketime`) the test is skipped, and CI does not accept that.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.etcd import running_cluster
from tests.support.programs import Cluster, cluster
from tests.support.system import paced_model, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
AGENTS = 2
# Longer than the lease; whatever an hour can end has ended by then.
WATCHED_S = 6.0
PROGRAMS = ["cp-1", "cp-2", "node-1", "router"]

pytestmark = pytest.mark.skipif(
    not LIBRARIES, reason="libfaketime is not installed: the wall clock cannot be stepped"
)


class WallClocks:
    """One wall clock for each program, as far off as its file says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        for name in PROGRAMS:
            self.step(name, "+0")

    def step(self, name: str, by: str) -> None:
        (self._folder / name).write_text(by)

    def environment(self, name: str) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._folder / name),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


@pytest.fixture
def clocks(tmp_path: Path) -> WallClocks:
    return WallClocks(tmp_path / "clocks")


@pytest.fixture
async def system(tmp_path: Path, clocks: WallClocks) -> AsyncIterator[Cluster]:
    """Two control planes, two agents, one model on each; `cp-1` leads."""
    with running_cluster(tmp_path / "etcd") as etcd:
        async with cluster(tmp_path / "run", etcd.endpoints) as made:
            made.env = {name: clocks.environment(name) for name in PROGRAMS}
            settings = ("--insecure", "--heartbeat-interval-s", "2")
            await made.control(1, *settings)
            await made.leads(1)
            await made.control(2, *settings)
            for number in range(AGENTS):
                await made.agent(number + 1, 2)
            await made.start_router()

            async def attached() -> bool:
                agents = (await made.status())["agents"]
                return [agent["state"] for agent in agents] == ["ready"] * AGENTS

            await until("all agents are attached", attached, 20)
            code, answer = await made.apply(paced_model("m", replicas=AGENTS))
            assert code == 200, answer

            async def ready() -> bool:
                replicas = (await made.status())["replicas"]
                return [replica["state"] for replica in replicas] == ["ready"] * AGENTS

            await until("all replicas are ready", ready, 20)
            yield made


def seen(status: dict[str, Any]) -> dict[str, Any]:
    """All that must not move."""
    return {
        "leader": status["leader"],
        "term": status["term"],
        "agents": [(a["node_id"], a["state"], a["connected"]) for a in status["agents"]],
        "replicas": [(r["replica_id"], r["state"], r["pid"]) for r in status["replicas"]],
    }


@pytest.mark.parametrize("name", PROGRAMS)
async def test_an_hour_more_or_less_on_the_wall_clock_moves_nothing(
    system: Cluster, clocks: WallClocks, name: str
) -> None:
    before = seen(await system.status())
    loop = asyncio.get_running_loop()
    for by in ("+3600", "-3600"):
        clocks.step(name, by)
        ends_s = loop.time() + WATCHED_S
        while loop.time() < ends_s:
            assert seen(await system.status()) == before, by
            await asyncio.sleep(0.2)
    assert (await system.get(f"{system.router}/v1/models"))["data"]
