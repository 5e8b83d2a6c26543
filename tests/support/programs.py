"""The programs started one by one, as on several machines: `llmgw control`, `agent`, `router`.

Each `Program` is one real process in a process group of its own, its output in a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.support.system import ROOT, free_port_base, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path


class Program:
    """One running `llmgw` command."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    async def says(self, text: str, timeout_s: float = 15) -> None:
        """Wait until this text stands in its output."""

        async def said() -> bool:
            return text in self.output

        try:
            await until(f"{self.name} says {text!r}", said, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output[-3000:]}") from None

    async def ends(self, timeout_s: float = 15) -> int:
        """Wait for its exit code."""
        async with asyncio.timeout(timeout_s):
            return await self.process.wait()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)


async def start(
    name: str, folder: Path, *args: str, env: Mapping[str, str] | None = None
) -> Program:
    """Start `llmgw ARGS`, with these variables besides the test's own."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "llmgw", *args),
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    return Program(name, process, log)


class Cluster:
    """Control planes, agents and a router against one etcd, each started when a test wants it."""

    def __init__(self, folder: Path, endpoints: list[str]) -> None:
        self.folder = folder
        self.endpoints = endpoints
        self.base = free_port_base()
        self.programs: list[Program] = []
        self.env: dict[str, dict[str, str]] = {}
        """Environment of programs by name, for those that a test wants to deceive."""

    @property
    def router(self) -> str:
        return f"http://127.0.0.1:{self.base}"

    def admin(self, number: int = 1) -> str:
        return f"http://127.0.0.{number}:{self.base + 1}"

    def agent_address(self, number: int = 1) -> str:
        return f"127.0.0.{number}:{self.base + 2}"

    def node_address(self, number: int = 1) -> str:
        """A loopback address of this cluster's own: engines of all clusters use the same ports."""
        return f"127.{self.base >> 8}.{self.base & 255}.{number}"

    def _etcd(self) -> list[str]:
        return [part for endpoint in self.endpoints for part in ("--etcd", endpoint)]

    async def control(self, number: int = 1, *args: str) -> Program:
        name = f"cp-{number}"
        program = await start(
            name,
            self.folder,
            *("control", "--id", name, *self._etcd()),
            *("--agent-listen", self.agent_address(number)),
            *("--admin-listen", f"127.0.0.{number}:{self.base + 1}"),
            *(args or ("--insecure", "--heartbeat-interval-s", "1")),
            env=self.env.get(name),
        )
        self.programs.append(program)
        return program

    async def agent(self, number: int = 1, planes: int = 1, *args: str) -> Program:
        name = f"node-{number}"
        dial = [p for n in range(planes) for p in ("--control", self.agent_address(n + 1))]
        program = await start(
            name,
            self.folder,
            *("agent", "--node-id", name, *dial, "--address", self.node_address(number)),
            *("--state-dir", str(self.folder / name)),
            *(args or ("--insecure",)),
            env=self.env.get(name),
        )
        self.programs.append(program)
        return program

    async def start_router(self, *args: str) -> Program:
        program = await start(
            "router",
            self.folder,
            *("router", *self._etcd(), "--listen", f"127.0.0.1:{self.base}"),
            *("--state-dir", str(self.folder / "router"), *args),
            env=self.env.get("router"),
        )
        self.programs.append(program)
        return program

    async def get(self, url: str) -> Any:
        timeout = aiohttp.ClientTimeout(total=3)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url) as response,
        ):
            return await response.json()

    async def status(self, number: int = 1) -> dict[str, Any]:
        status: dict[str, Any] = await self.get(f"{self.admin(number)}/v1/status")
        return status

    async def leads(self, number: int = 1, timeout_s: float = 20) -> None:
        """Wait until this control plane leads and has finished its start."""

        async def leading() -> bool:
            status = await self.status(number)
            return status["role"] == "leading" and status["agents"] is not None

        await until(f"cp-{number} leads", leading, timeout_s)

    async def apply(self, *models: dict[str, Any], number: int = 1) -> tuple[int, Any]:
        """Put models in force through the admin API."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"{self.admin(number)}/v1/catalog/apply",
                json={"models": models, "expected_revision": None, "prune": False, "who": "t"},
            ) as response,
        ):
            return response.status, await response.json()

    async def replica(self, state: str, timeout_s: float = 20, number: int = 1) -> dict[str, Any]:
        """Wait until the one replica is in this state."""

        async def found() -> dict[str, Any] | None:
            replicas = (await self.status(number)).get("replicas") or []
            return next((r for r in replicas if r["state"] == state), None)

        replica: dict[str, Any] = await until(f"a replica is {state}", found, timeout_s)
        return replica

    async def end(self) -> None:
        """Stop every program, and every engine the agents left."""
        for program in self.programs:
            if program.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    program.process.send_signal(signal.SIGCONT)
                    program.process.terminate()
        for program in self.programs:
            try:
                await program.ends(15)
            except TimeoutError:
                program.process.kill()
                await program.process.wait()
                raise
        for folder in self.folder.glob("node-*"):
            if folder.is_dir():
                stopper = await start(
                    "stop", self.folder, "agent", "--stop-engines", "--state-dir", str(folder)
                )
                assert await stopper.ends(30) == 0, stopper.output


@contextlib.asynccontextmanager
async def cluster(folder: Path, endpoints: list[str]) -> AsyncIterator[Cluster]:
    """A cluster against a running etcd; everything ends with the block."""
    made = Cluster(folder, endpoints)
    try:
        yield made
    finally:
        await made.end()
