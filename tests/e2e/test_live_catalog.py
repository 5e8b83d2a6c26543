"""The catalog changes under a running system: in force at once, nothing restarted, nothing cut."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import aiohttp
import psutil
import pytest
import pytest_asyncio

from tests.support.system import Stream, System, chat, paced_model, until, up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

IN_FORCE_S = 1.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    folder = tmp_path_factory.mktemp("catalog")
    async with up(folder, [paced_model("org/first")]) as system:
        await system.settled(replicas=1)
        yield system


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def apply(system: System, *models: dict[str, Any], prune: bool = False) -> tuple[int, str]:
    arguments = ["--prune"] if prune else []
    code, _, errors = await system.ctl(
        "apply", *arguments, "-f", "-", stdin=json.dumps({"models": list(models)})
    )
    return code, errors


async def names(system: System) -> set[str]:
    listed = await system.get(f"{system.router}/v1/models")
    return {model["id"] for model in listed["data"]}


async def ask(system: System, model: str) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{system.router}/v1/chat/completions", json=chat(model, max_tokens=2)
        ) as response,
    ):
        return response.status, await response.json()


def identities(status: dict[str, Any]) -> dict[str, int]:
    return {replica["model"]: replica["pid"] for replica in status["replicas"]}


async def test_a_second_model_is_in_force_within_a_second_and_the_first_runs_on(
    system: System,
) -> None:
    before = identities(await system.status())
    code, errors = await apply(system, paced_model("org/second") | {"aliases": ["second"]})
    assert code == 0, errors
    await until(
        "the router lists it", lambda: _superset(system, {"org/second", "second"}), IN_FORCE_S
    )
    status = await system.settled(replicas=2)
    assert identities(status)["org/first"] == before["org/first"]

    async def answered() -> Any:
        code, answer = await ask(system, "second")
        return answer if code == 200 else None

    # The leader says "ready" a moment before the router hears of the endpoint.
    answer = await until("it answers by its alias", answered, IN_FORCE_S)
    assert answer["model"] == "second"


async def _superset(system: System, wanted: set[str]) -> bool:
    return wanted <= await names(system)


async def test_a_changed_alias_is_in_force_within_a_second_without_a_restart(
    system: System,
) -> None:
    before = identities(await system.status())
    code, errors = await apply(system, paced_model("org/first") | {"aliases": ["renamed"]})
    assert code == 0, errors

    async def answers() -> bool:
        return bool((await ask(system, "renamed"))[0] == 200)

    await until("the new alias answers", answers, IN_FORCE_S)
    assert identities(await system.status())["org/first"] == before["org/first"]


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (paced_model("org/third") | {"aliases": ["org/first"]}, "models[0].aliases[0]"),
        (paced_model("x") | {"name": 1.1}, "models[0].name"),
        ({"name": "x", "profiles": [{"name": "p", "engine": "nosuch"}]}, "profiles[0].engine"),
    ],
)
async def test_an_invalid_catalog_is_refused_with_the_field_and_changes_nothing(
    system: System, model: dict[str, Any], field: str
) -> None:
    before = await system.get(f"{system.ready['admin'][0]}/v1/catalog")
    code, errors = await apply(system, paced_model("org/fine"), model)
    assert code == 2
    assert field.replace("[0]", "[1]", 1) in errors or field in errors
    assert await system.get(f"{system.ready['admin'][0]}/v1/catalog") == before


async def test_a_killed_agent_comes_back_to_the_same_engines(system: System) -> None:
    """A09: same pid, every token, and the log has what was written in between."""
    status = await system.status()
    (replica,) = [r for r in status["replicas"] if r["model"] == "org/first"]
    stream = Stream()
    stream.open(system.router, chat("org/first", max_tokens=100))

    async def flowing() -> bool:
        return len(stream.texts) > 2

    await until("tokens flow", flowing, 10)
    agents = {agent["node_id"]: agent["pid"] for agent in system.ready["agents"]}
    os.kill(agents[replica["node"]], signal.SIGKILL)

    async def replaced() -> bool:
        now = {agent["node_id"]: agent["pid"] for agent in system.ready["agents"]}
        return bool(now[replica["node"]] != agents[replica["node"]])

    await until("the agent runs again", replaced, 15)

    async def adopted() -> dict[str, Any] | None:
        status = await system.status()
        connected = all(agent["connected"] for agent in status["agents"])
        return status if connected and len(status["replicas"]) == 2 else None

    status = await until("its engines are known again", adopted, 15)
    await stream.finished()
    assert stream.error == ""
    assert "".join(stream.texts).split() == [f"t{number}" for number in range(100)]
    assert identities(status)["org/first"] == replica["pid"]
    again = [r for r in status["replicas"] if r["model"] == "org/first"]
    assert again[0]["process_start_ticks"] == replica["process_start_ticks"]


async def test_a_removed_model_is_withdrawn_first_then_drained_then_stopped(
    system: System,
) -> None:
    status = await system.status()
    pid = identities(status)["org/second"]
    stream = Stream()
    stream.open(system.router, chat("org/second", max_tokens=80))

    async def flowing() -> bool:
        return len(stream.texts) > 2

    await until("tokens flow", flowing, 10)
    code, _, errors = await system.ctl("delete", "org/second")
    assert code == 0, errors

    async def unrouted() -> bool:
        return (await ask(system, "org/second"))[0] == 404

    await until("new requests are refused", unrouted, IN_FORCE_S)
    assert stream.is_open
    assert psutil.pid_exists(pid)
    await stream.finished()
    assert stream.error == ""
    assert "".join(stream.texts).split() == [f"t{number}" for number in range(80)]

    async def gone() -> bool:
        return not psutil.pid_exists(pid)

    await until("the engine has stopped", gone, 20)
    await system.settled(replicas=1)


async def test_a_change_of_a_catalog_that_changed_since_is_refused(system: System) -> None:
    code, text, errors = await system.ctl("get", "-o", "yaml")
    assert code == 0, errors
    code, errors = await apply(system, paced_model("org/first") | {"weight": 3})
    assert code == 0, errors
    code, _, errors = await system.ctl("apply", "-f", "-", stdin=text)
    assert code == 3
    assert "changed" in errors
    code, _, errors = await system.ctl("apply", "--force", "-f", "-", stdin=text)
    assert code == 0, errors


async def test_a_leader_told_to_resign_hands_over(system: System) -> None:
    old = await system.leader()
    code, _, errors = await system.ctl("leader", "resign")
    assert code == 0, errors

    async def handed_over() -> bool:
        leader = await system.leader()
        return bool(leader["term"] > old["term"] and leader["id"] != old["id"])

    await until("another leads", handed_over, 3)
    await asyncio.gather(*(ask(system, "org/first") for _ in range(4)))
