"""The whole system's times: up to the first token, fail-over, and a catalog write in force.

Beside each stands the limit it cannot beat, or the figure of a system it is compared with:
etcd deletes the key of a dead lease TTL to TTL + 0.5 s after the last renewal; Kubernetes'
controller-manager takes 15-17 s after kill -9 with its default lease; Patroni's TTL is 30 s.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

from bench.figures import line, spread
from ha.clock import BootClock
from tests.support.system import System, paced_model, smollm2_model, until, up

STARTS = 3
KILLS = 7
HANDOVERS = 10
WRITES = 30
CLOCK = BootClock()


async def run() -> None:
    """Print all figures of the whole system."""
    print("whole system (`llmgw up`, one etcd member, lease TTL 5 s):")
    await _starts()
    with tempfile.TemporaryDirectory() as folder:
        async with up(Path(folder), [paced_model("paced")]) as system:
            await system.settled(replicas=1)
            await _writes(system)
            await _failovers(system, signal.SIGTERM, HANDOVERS)
            await _failovers(system, signal.SIGKILL, KILLS)


async def _starts() -> None:
    times_s = []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory() as folder:
            started_s = CLOCK.now_s()
            async with up(Path(folder), [smollm2_model()]):
                times_s.append(CLOCK.now_s() - started_s)
    line("`up` to the first answer of SmolLM2-135M", spread(times_s))


async def _writes(system: System) -> None:
    async with aiohttp.ClientSession() as session:
        times_s = [await _write(system, session, f"alias-{n}") for n in range(WRITES)]
    line("catalog write to in force at the router", spread(times_s), "limit: 1 s p99")


async def _write(system: System, session: aiohttp.ClientSession, alias: str) -> float:
    model = paced_model("paced") | {"aliases": [alias]}
    body = {"models": [model], "expected_revision": None, "prune": False, "who": "bench"}
    leader = await system.leader()
    started_s = CLOCK.now_s()
    async with session.post(f"{leader['admin']}/v1/catalog/apply", json=body) as response:
        response.raise_for_status()
    await until("in force", lambda: _lists(session, system.router, alias), 10, 0.002)
    return CLOCK.now_s() - started_s


async def _lists(session: aiohttp.ClientSession, router: str, alias: str) -> bool:
    async with session.get(f"{router}/v1/models") as response:
        return alias in {model["id"] for model in (await response.json())["data"]}


async def _failovers(system: System, number: int, tries: int) -> None:
    times_s = [await _failover(system, number) for _ in range(tries)]
    name = signal.Signals(number).name
    killed = number == signal.SIGKILL
    line(
        f"{name} of the leader to another leads",
        spread([leads_s for leads_s, _ in times_s]),
        "etcd's own limit: TTL to TTL + 0.5 s" if killed else "",
    )
    line(
        f"{name} of the leader to all agents attached",
        spread([attached_s for _, attached_s in times_s]),
        "Kubernetes' controller-manager: 15-17 s" if killed else "",
    )


async def _failover(system: System, number: int) -> tuple[float, float]:
    """Seconds until another leads, and until all agents are attached to it."""
    old = await system.leader()
    planes = [plane for plane in system.ready["control_planes"] if plane["id"] != old["id"]]
    killed_s = CLOCK.now_s()
    os.kill(old["pid"], number)
    await until("another leads", lambda: _leads(planes, old["term"]), 20, 0.005)
    leads_s = CLOCK.now_s() - killed_s
    await until("all attached", lambda: _attached(planes), 20, 0.005)
    attached_s = CLOCK.now_s() - killed_s
    await until("three control planes again", lambda: _whole(system), 30)
    return leads_s, attached_s


async def _statuses(planes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    timeout = aiohttp.ClientTimeout(total=1)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for plane in planes:
            async with session.get(f"{plane['admin']}/v1/status") as response:
                found.append(json.loads(await response.read()))
    return found


async def _leads(planes: list[dict[str, Any]], old_term: int) -> bool:
    statuses = await _statuses(planes)
    return any(s["role"] == "leading" and s["term"] > old_term for s in statuses)


async def _attached(planes: list[dict[str, Any]]) -> bool:
    for status in await _statuses(planes):
        if status["role"] == "leading":
            # None while the new leader starts.
            agents = status["agents"] or []
            return bool(agents) and all(a["connected"] and a["state"] == "ready" for a in agents)
    return False


async def _whole(system: System) -> bool:
    status = await system.status()
    return len(status["control_planes"]) == len(system.ready["control_planes"])
