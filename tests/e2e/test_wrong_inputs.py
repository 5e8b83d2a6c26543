"""What people get wrong: each gives one clear message, no crash loop, and says why in the state."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.support import etcd as real_etcd
from tests.support.programs import Cluster, cluster, start
from tests.support.system import paced_model, smollm2_model, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[real_etcd.Cluster]:
    with real_etcd.running_cluster(tmp_path / "etcd") as running:
        yield running


@pytest.fixture
async def one_node(tmp_path: Path, etcd: real_etcd.Cluster) -> AsyncIterator[Cluster]:
    """One control plane that leads, and one agent."""
    async with cluster(tmp_path / "run", etcd.endpoints) as made:
        await made.control()
        await made.agent()
        await made.leads()
        yield made


async def test_an_etcd_that_is_down_at_start_is_waited_for(
    tmp_path: Path, etcd: real_etcd.Cluster
) -> None:
    (member,) = etcd.members
    member.kill()
    async with cluster(tmp_path / "run", etcd.endpoints) as made:
        control = await made.control()
        await control.says("etcd")
        status = await made.status()
        assert status["role"] == "standby"
        assert any("etcd" in problem for problem in status["problems"])
        member.start()
        await made.leads()

        async def well() -> bool:
            return bool((await made.status())["problems"] == [])

        await until("no problem is left", well, 10)


def taken_port() -> tuple[socket.socket, int]:
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    holder.listen()
    return holder, int(holder.getsockname()[1])


@pytest.mark.parametrize("flag", ["--agent-listen", "--admin-listen"])
async def test_a_taken_port_of_a_control_plane_is_one_line(tmp_path: Path, flag: str) -> None:
    holder, port = taken_port()
    other = "--admin-listen" if flag == "--agent-listen" else "--agent-listen"
    with holder:
        program = await start(
            "control",
            tmp_path,
            *("control", "--etcd", "127.0.0.1:1", "--insecure"),
            *(flag, f"127.0.0.1:{port}", other, "127.0.0.1:0"),
        )
        assert await program.ends() == 1
    (line,) = [line for line in program.output.splitlines() if line.startswith("error: ")]
    assert str(port) in line
    assert flag in line
    assert "Traceback" not in program.output


async def test_a_taken_port_of_a_router_is_one_line(tmp_path: Path) -> None:
    holder, port = taken_port()
    with holder:
        program = await start(
            "router",
            tmp_path,
            *("router", "--etcd", "127.0.0.1:1", "--listen", f"127.0.0.1:{port}"),
            *("--state-dir", str(tmp_path / "router")),
        )
        assert await program.ends() == 1
    (line,) = [line for line in program.output.splitlines() if line.startswith("error: ")]
    assert str(port) in line
    assert "--listen" in line
    assert "Traceback" not in program.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["agent", "--node-id", "n"], "--control"),
        (["agent", "--node-id", "n", "--control", "127.0.0.1:1"], "--insecure"),
        (["control", "--etcd", "127.0.0.1:1"], "--insecure"),
        (["control", "--insecure"], "--etcd"),
        (["router", "--listen", "nonsense", "--etcd", "127.0.0.1:1"], "--listen"),
        (["control", "--insecure", "--etcd", "127.0.0.1:1", "--lease-ttl-s", "x"], "lease-ttl-s"),
        (["ctl", "apply", "-f", "/no/such/file.yaml"], "/no/such/file.yaml"),
    ],
)
async def test_a_command_line_that_cannot_work_says_which_flag(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    program = await start("wrong", tmp_path, *arguments)
    assert await program.ends() == 2
    assert said in program.output
    assert "Traceback" not in program.output


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (
            smollm2_model() | {"name": "lost", "model_path": "/no/such/weights.gguf"},
            "/no/such/weights.gguf does not exist",
        ),
        (
            paced_model("brief", args=("--exit-code-at-once", "3")),
            "3",
        ),
        (
            {
                "name": "typo",
                "profiles": [{"name": "p", "engine": "command", "args": ["/no/prog"]}],
            },
            "/no/prog",
        ),
    ],
)
async def test_an_engine_that_cannot_run_says_why_and_is_not_tried_in_a_loop(
    one_node: Cluster, tmp_path: Path, model: dict[str, Any], reason: str
) -> None:
    code, answer = await one_node.apply(model)
    assert code == 200, answer

    async def said() -> dict[str, Any] | None:
        entries = (await one_node.status())["models"]
        return next((entry for entry in entries if reason in entry["reason"]), None)

    await until(f"the model's reason names {reason!r}", said, 20)
    await asyncio.sleep(4)
    tries = sum(path.is_file() for path in (tmp_path / "run" / "node-1").rglob("*.log"))
    assert tries <= 5
    assert one_node.programs[1].process.returncode is None


async def test_an_engine_nobody_has_is_said_per_node(one_node: Cluster) -> None:
    profile = {"name": "p", "engine": "sglang"}
    code, answer = await one_node.apply({"name": "far", "profiles": [profile]})
    assert code == 200, answer

    async def said() -> bool:
        reasons = [entry["reason"] for entry in (await one_node.status())["models"]]
        return any("node-1" in reason and "sglang" in reason for reason in reasons)

    await until("the model's reason names node and engine", said, 10)
    assert (await one_node.status())["replicas"] == []


async def test_an_engine_that_dies_later_is_replaced_and_says_what_it_printed(
    one_node: Cluster,
) -> None:
    code, answer = await one_node.apply(paced_model("mortal"))
    assert code == 200, answer
    replica = await one_node.replica("ready")
    os.kill(replica["pid"], signal.SIGKILL)

    async def replaced() -> bool:
        replicas = (await one_node.status())["replicas"]
        return any(r["state"] == "ready" and r["pid"] != replica["pid"] for r in replicas)

    await until("another one is ready", replaced, 20)


async def test_the_router_serves_on_when_all_of_management_and_etcd_are_dead(
    tmp_path: Path, etcd: real_etcd.Cluster
) -> None:
    """SPEC 10: it loses nothing when any of them dies, and boots from its signed copy."""
    async with cluster(tmp_path / "run", etcd.endpoints) as made:
        control, _ = await made.control(), await made.agent()
        router = await made.start_router()
        await made.leads()
        code, answer = await made.apply(paced_model("org/m"))
        assert code == 200, answer
        await made.replica("ready")

        async def listed() -> bool:
            return bool((await made.get(f"{made.router}/v1/models"))["data"])

        async def answers() -> bool:
            return await _chat(made.router, "org/m") == 200

        await until("the router lists the model", listed, 5)
        await until("the router answers", answers, 5)
        control.signal(signal.SIGKILL)
        etcd.members[0].kill()
        assert await answers()
        router.signal(signal.SIGTERM)
        assert await router.ends() == 0
        await made.start_router()
        await until("a router that starts now answers", answers, 10)


async def _chat(router: str, model: str) -> int:
    request = {"model": model, "max_tokens": 2, "messages": []}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{router}/v1/chat/completions", json=request) as response,
    ):
        return response.status
