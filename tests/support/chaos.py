"""Random faults against a whole cluster of real processes under streaming load, from one seed.

Everything random comes from the seed, but not what the processes make of it: a seed that found
something finds it again more often than not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
from typing import TYPE_CHECKING, Any

import aiohttp

from ha.etcd import EtcdStore
from llmgw.wire.keys import Keys
from tests.support.invariants import Run
from tests.support.system import Stream, chat, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.support.etcd import Cluster as Etcd
    from tests.support.etcd import Member
    from tests.support.programs import Cluster, Program

PLANES = 3
AGENTS = 2
LEASE_TTL_S = 5.0
PAUSE_MIN_S, PAUSE_MAX_S = 0.5, 3 * LEASE_TTL_S
DOWN_MAX_S = 3.0


class Chaos:
    """One run: a cluster, its load, and what is done to it."""

    def __init__(self, cluster: Cluster, etcd: Etcd, seed: int) -> None:
        self.cluster = cluster
        self.etcd = etcd
        self.random = random.Random(seed)
        self.faults: list[str] = []
        self.failed: list[str] = []
        self.streamed = 0
        self._running: dict[str, Program] = {}
        self._under_fault: set[str] = set()

    def journal(self, name: str) -> Path:
        return self.cluster.folder / f"{name}.jsonl"

    async def start(self, *control: str) -> None:
        """Start every program."""
        self._control = ("--insecure", "--heartbeat-interval-s", "1", *control)
        for number in range(1, PLANES + 1):
            await self._start(f"cp-{number}")
        for number in range(1, AGENTS + 1):
            await self._start(f"node-{number}")
        await self.cluster.start_router("--journal", str(self.journal("router")))

    async def _start(self, name: str) -> None:
        kind, number = name.split("-")
        journal = ("--journal", str(self.journal(name)))
        if kind == "cp":
            program = await self.cluster.control(int(number), *self._control, *journal)
        else:
            program = await self.cluster.agent(int(number), PLANES, "--insecure", *journal)
        self._running[name] = program

    async def apply(self, *models: dict[str, Any]) -> None:
        """Put models in force, through whoever leads."""

        async def leads() -> dict[str, Any] | None:
            return await self.status()

        status = await until("somebody leads", leads, 30)
        code, answer = await self.cluster.apply(*models, number=int(status["id"].split("-")[1]))
        assert code == 200, answer

    async def routed(self, models: dict[str, int]) -> None:
        """Wait until the router answers for every model."""

        async def answers() -> bool:
            text = await _text(f"{self.cluster.router}/v1/models")
            return all(f'"{name}"' in text for name in models)

        await until("the router knows the models", answers, 15)
        for name in models:
            stream = Stream()
            stream.open(self.cluster.router, chat(name, max_tokens=1))
            await stream.finished()
            assert stream.done, stream.error

    # ---- load ----------------------------------------------------------------------------------

    async def load(self, model: str, tokens: int) -> None:
        """One client: a stream after the other, until cancelled."""
        while True:
            stream = Stream()
            stream.open(self.cluster.router, chat(model, max_tokens=tokens))
            try:
                await stream.finished()
            finally:
                if stream.is_open:
                    await stream.close()
            text = "".join(stream.texts).split()
            if stream.error or not stream.done or text != [f"t{n}" for n in range(tokens)]:
                self.failed.append(f"{model}: {stream.status} {stream.error} {len(text)} tokens")
            self.streamed += 1

    # ---- faults --------------------------------------------------------------------------------

    async def storm(self, duration_s: float) -> None:
        """Faults, several at once, for so long; everything is healed when this returns."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + duration_s
        async with asyncio.TaskGroup() as group:
            while loop.time() < ends_s:
                for _ in range(self.random.choice((1, 1, 1, 2, 3))):
                    if (fault := self._pick()) is not None:
                        group.create_task(fault)
                await asyncio.sleep(self.random.uniform(0.2, 4.0))

    def _pick(self) -> Any:
        programs = [name for name in self._running if name not in self._under_fault]
        members = [
            member
            for member in self.etcd.members
            if member.name not in self._under_fault
            # A majority lives, most of the time: a storm without quorum proves little else.
            and (self._sound_members() > 2 or self.random.random() < 0.1)
        ]
        names = [*programs, *(member.name for member in members)]
        if not names:
            return None
        name = self.random.choice(names)
        pause_s = self.random.uniform(PAUSE_MIN_S, PAUSE_MAX_S)
        down_s = self.random.uniform(0.0, DOWN_MAX_S)
        self._under_fault.add(name)
        member = next((member for member in members if member.name == name), None)
        if member is not None:
            kill = self.random.random() < 0.5
            return self._hurt_member(member, kill=kill, for_s=down_s if kill else pause_s)
        how = self.random.choice(("kill", "stop", "kill", "stop", "term"))
        return self._hurt_program(name, how, down_s, pause_s)

    def _sound_members(self) -> int:
        return sum(1 for member in self.etcd.members if member.name not in self._under_fault)

    async def _hurt_member(self, member: Member, *, kill: bool, for_s: float) -> None:
        self.faults.append(f"{'kill' if kill else 'stop'} {member.name} for {for_s:.1f} s")
        if kill:
            await asyncio.to_thread(member.kill)
            await asyncio.sleep(for_s)
            member.start()
        else:
            member.freeze()
            await asyncio.sleep(for_s)
            member.thaw()
        self._under_fault.discard(member.name)

    async def _hurt_program(self, name: str, how: str, down_s: float, pause_s: float) -> None:
        self.faults.append(f"{how} {name} for {pause_s if how == 'stop' else down_s:.1f} s")
        program = self._running[name]
        if program.process.returncode is not None:
            raise AssertionError(f"{name} ended by itself: {program.output[-3000:]}")
        if how == "stop":
            program.signal(signal.SIGSTOP)
            await asyncio.sleep(pause_s)
            program.signal(signal.SIGCONT)
        else:
            program.signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
            await program.ends(10)
            await asyncio.sleep(down_s)
            await self._start(name)
        self._under_fault.discard(name)

    # ---- afterwards ----------------------------------------------------------------------------

    async def status(self) -> dict[str, Any] | None:
        """What the leader says; None while nobody does."""
        for number in range(1, PLANES + 1):
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                status = await self.cluster.status(number)
                if status["agents"] is not None and status["role"] == "leading":
                    return status
        return None

    async def at_rest(self, replicas: int, timeout_s: float) -> dict[str, Any]:
        """Wait until somebody leads, every agent is attached and just what is wanted is ready."""

        async def rests() -> dict[str, Any] | None:
            status = await self.status()
            if status is None or status["settling"]:
                return None
            agents = [a for a in status["agents"] if a["connected"] and a["state"] == "ready"]
            states = [replica["state"] for replica in status["replicas"]]
            planes = [plane["role"] for plane in status["control_planes"]]
            whole = len(agents) == AGENTS and len(planes) == PLANES
            return status if whole and states == ["ready"] * replicas else None

        try:
            status: dict[str, Any] = await until("all is at rest", rests, timeout_s, 0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}: {json.dumps(await self.status(), indent=1)}") from None
        return status

    async def recorded(self, wanted: dict[str, int]) -> Run:
        """Journals and history of the run."""

        def read(name: str) -> list[dict[str, Any]]:
            path = self.journal(name)
            lines = path.read_text().splitlines() if path.exists() else []
            return [json.loads(line) for line in lines]

        return Run(
            planes={f"cp-{n}": read(f"cp-{n}") for n in range(1, PLANES + 1)},
            agents={f"node-{n}": read(f"node-{n}") for n in range(1, AGENTS + 1)},
            routers={"router": read("router")},
            leaders=await self._leaders(),
            wanted=wanted,
        )

    async def _leaders(self) -> list[tuple[int, bytes | None]]:
        store = EtcdStore(self.cluster.endpoints)
        key = Keys().leader
        found: list[tuple[int, bytes | None]] = []
        try:
            end = (await store.list(key, timeout_s=5)).revision
            async with asyncio.timeout(20):
                async for batch in store.watch(key, 1):
                    found += [(c.mod_revision, c.value) for c in batch.changes if c.key == key]
                    if batch.resume_revision > end or (not batch.changes and found):
                        break
        finally:
            await store.close()
        return found


async def under_load(
    chaos: Chaos, models: dict[str, int], clients: int, work: Callable[[], Awaitable[None]]
) -> None:
    """Do something while clients stream from every model."""
    tasks = [
        asyncio.create_task(chaos.load(model, 20 + 30 * (client % 3)))
        for model in models
        for client in range(clients)
    ]
    try:
        await work()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _text(url: str) -> str:
    timeout = aiohttp.ClientTimeout(total=3)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
        return await response.text()
