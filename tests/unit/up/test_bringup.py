"""Coming up: what is waited for, what is said, which catalog is applied, when it is given up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import pytest
import pytest_asyncio

from llmgw.ctl.yaml_input import CatalogFile
from llmgw.up import bringup, model
from llmgw.up.bringup import BringUp, Wishes
from llmgw.up.console import Console
from llmgw.up.errors import UpError
from llmgw.up.layout import ControlPlane, Layout, Node
from tests.support.fake_admin import FakeAdmin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from llmgw.up.state import StateDir
    from llmgw.up.system import System

OTHER = {"name": "other", "profiles": [{"name": "p", "engine": "vllm"}]}


class Lines(Console):
    """A console that remembers."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    @property
    def lines(self) -> list[str]:
        return [" ".join(line.split()) for line in self.text.splitlines()]


class StepClock:
    """Each look at it is a second later."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now_s(self) -> float:
        self.time_s += 1
        return self.time_s


class Coming:
    """A `BringUp` in front of a fake control plane."""

    def __init__(self, plane: FakeAdmin, session: aiohttp.ClientSession) -> None:
        self.plane = plane
        self.console = Lines()
        self._session = session

    def up(self, *, catalog: CatalogFile | None = None, once: bool = False) -> BringUp:
        layout = Layout(
            router_port=1,
            admin_port=2,
            agent_port=3,
            control_planes=(ControlPlane("cp-1", self.plane.address, "x:1"),),
            nodes=(Node("node-1", "127.0.1.1"),),
            etcd=(),
        )
        system = SimpleNamespace(layout=layout, control_planes=[None], pids={"cp-1": 1})
        return BringUp(
            cast("System", system),
            state=cast("StateDir", SimpleNamespace(logs="/logs")),
            wishes=Wishes(catalog, once),
            console=self.console,
            clock=StepClock(),
            session=self._session,
        )

    def status(self, **changes: Any) -> None:
        known = {"leader": {"id": "cp-1", "term": 1}, "agents": [], "models": [], "replicas": []}
        self.plane.on("GET /v1/status", 200, {**known, **changes})

    def catalog(self, *models: dict[str, Any]) -> None:
        self.plane.on("GET /v1/catalog", 200, {"revision": 3, "models": list(models)})
        self.plane.on("POST /v1/catalog/apply", 200, {"revision": 4})

    async def asked_again(self, times: int) -> None:
        """Wait until the control plane has been asked so often from now on."""
        wanted = len(self.plane.asked) + times
        async with asyncio.timeout(10):
            while len(self.plane.asked) < wanted:  # noqa: ASYNC110 - another thread counts
                await asyncio.sleep(0.01)

    @property
    def applied(self) -> list[Any]:
        return [body for key, body in self.plane.asked if key.startswith("POST")]


@pytest_asyncio.fixture
async def coming() -> AsyncIterator[Coming]:
    plane = FakeAdmin()
    async with aiohttp.ClientSession() as session:
        yield Coming(plane, session)
    plane.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bringup, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(bringup, "WATCH_INTERVAL_S", 0.01)


def entry(ready: int, wanted: int = 1, name: str = "m") -> dict[str, Any]:
    return {"name": name, "replicas_ready": ready, "replicas_wanted": wanted, "reason": ""}


async def test_an_empty_catalog_gets_the_built_in_model(coming: Coming) -> None:
    coming.catalog()
    assert await coming.up()._apply_catalog() == [model.NAME]
    (request,) = coming.applied
    assert request["models"] == model.default_models(model.find_weights())
    assert request["prune"] is False


async def test_a_catalog_that_was_left_is_left_alone(coming: Coming) -> None:
    coming.catalog(OTHER)
    assert await coming.up()._apply_catalog() == ["other"]
    assert coming.applied == []


async def test_a_catalog_file_says_all_that_runs(coming: Coming) -> None:
    """Also over what an earlier run left."""
    coming.catalog({"name": "left"})
    file = CatalogFile("f.yaml", models=[OTHER], revision=1)
    assert await coming.up(catalog=file)._apply_catalog() == ["other"]
    (request,) = coming.applied
    assert (request["models"], request["prune"]) == ([OTHER], True)
    assert request["expected_revision"] is None


async def test_what_a_control_plane_refuses_is_the_reason_to_stop(coming: Coming) -> None:
    coming.catalog()
    problems = [{"path": ["models", 0, "name"], "reason": "taken"}]
    refused = {"error": {"code": "invalid", "message": "no", "problems": problems}}
    coming.plane.on("POST /v1/catalog/apply", 422, refused)
    with pytest.raises(UpError, match=r"(?s)f\.yaml: models\[0\]\.name: taken.*was refused"):
        await coming.up(catalog=CatalogFile("f.yaml", models=[OTHER]))._apply_catalog()


async def test_each_step_of_a_model_is_said_once(coming: Coming) -> None:
    loading = {"model": "m", "state": "loading", "node": "node-1", "reason": ""}
    coming.status(models=[entry(0)], replicas=[loading])
    up = coming.up()
    up.models = ["m"]
    waiting = asyncio.create_task(up._wait_models())
    await coming.asked_again(5)
    coming.status(models=[entry(1)], replicas=[{**loading, "state": "ready"}])
    assert await waiting == "m"
    assert coming.console.lines[0] == "m loading on node-1 ..."
    assert coming.console.lines[1].startswith("m ready after ")
    assert len(coming.console.lines) == 2


async def test_a_model_that_wants_no_replica_is_not_waited_for(coming: Coming) -> None:
    coming.status(models=[entry(0, wanted=0), entry(1, name="n")])
    up = coming.up()
    up.models = ["m", "n"]
    assert await up._wait_models() == "n"
    up.models = ["m"]
    assert await up._wait_models() is None


async def test_once_gives_up_a_model_that_fails_and_a_watched_system_does_not(
    coming: Coming,
) -> None:
    failed = {"model": "m", "state": "failed", "node": "node-1", "reason": "exit code 3"}
    coming.status(models=[entry(0)], replicas=[failed])
    up = coming.up(once=True)
    up.models = ["m"]
    with pytest.raises(UpError, match="model m failed: exit code 3"):
        await up._wait_models()
    watched = coming.up()
    watched.models = ["m"]
    waiting = asyncio.create_task(watched._wait_models())
    await coming.asked_again(5)
    assert not waiting.done()
    coming.status(models=[entry(1)])
    assert await waiting == "m"


async def test_once_gives_up_after_a_bounded_time(
    coming: Coming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringup, "MODEL_TIMEOUT_S", 5)
    coming.status(models=[entry(0)])
    up = coming.up(once=True)
    up.models = ["m"]
    with pytest.raises(UpError, match="model m is not ready after 5 s"):
        await up._wait_models()


async def test_agents_count_when_they_are_connected_and_ready(coming: Coming) -> None:
    agent = {"node_id": "node-1", "connected": True, "state": "registering"}
    coming.status(agents=[agent])
    waiting = asyncio.create_task(coming.up()._wait_agents())
    await coming.asked_again(3)
    assert not waiting.done()
    coming.status(agents=[{**agent, "state": "ready"}])
    await waiting
    assert coming.console.lines[0].startswith("agents 1 of 1 attached")


async def test_what_does_not_happen_is_named_with_the_place_of_the_logs(
    coming: Coming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringup, "LEADER_TIMEOUT_S", 3)
    coming.status(leader=None)
    with pytest.raises(UpError, match="not within 3 s: a control plane leads; see /logs"):
        await coming.up()._wait_leader()


async def test_a_new_leader_is_announced_once_and_the_first_is_not(coming: Coming) -> None:
    coming.status()
    announcing = asyncio.create_task(coming.up().announce_leaders())
    await coming.asked_again(3)
    coming.status(leader={"id": "cp-2", "term": 2})
    await coming.asked_again(3)
    announcing.cancel()
    assert coming.console.lines == ["cp-2 leads now (term 2)"]
