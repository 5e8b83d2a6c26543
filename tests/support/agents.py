"""Agents for tests: in this process or as processes of their own, always cleaned up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmgw.agent import procfs
from llmgw.agent.agent import Agent
from llmgw.agent.engines import installed_engines
from llmgw.agent.main import split_address
from llmgw.agent.search import ControlName
from llmgw.agent.shard import Limits
from llmgw.domain.shard import ProfileSpec, ShardSpec
from llmgw.kit.journal import Journal
from llmgw.wire.link import GrpcDialer

if TYPE_CHECKING:
    import signal
    from collections.abc import AsyncIterator, Callable

    from llmgw.wire.link import Dialer

PACED_ENGINE = Path(__file__).with_name("paced_engine.py")
QUICK = Limits(stop_grace_s=1.0, drain_timeout_s=3.0)
WAIT_S = 30.0


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on now, below the kernel's ephemeral range is not promised."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def paced_spec(port: int, *flags: str, shard_id: str = "r1-0", **profile: Any) -> ShardSpec:
    """A shard that runs the paced engine."""
    args = (sys.executable, str(PACED_ENGINE), "--host", "{host}", "--port", "{port}", *flags)
    wanted = {"engine": "command", "args": args, "served_model_name": "paced", **profile}
    return ShardSpec(
        replica_id=shard_id.rpartition("-")[0],
        shard_id=shard_id,
        model="paced",
        profile=ProfileSpec("p", **wanted),
        spec_hash="hash",
        http_port=port,
    )


def make_agent(
    state_dir: Path,
    *controls: str,
    dialer: Dialer | None = None,
    limits: Limits = QUICK,
    journal: Path | None = None,
) -> Agent:
    """An agent in this process."""
    return Agent(
        node_id="n1",
        address="127.0.0.1",
        pool="",
        labels={},
        state_dir=state_dir,
        controls=[ControlName(*split_address(item), "cp") for item in controls],
        dialer=dialer or GrpcDialer(tls=None),
        engines=installed_engines(),
        limits=limits,
        journal=Journal(journal),
    )


@contextlib.asynccontextmanager
async def running(agent: Agent) -> AsyncIterator[None]:
    """Run an agent of this process; its engines run on afterwards."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(agent.run(stop))
        try:
            yield
        finally:
            stop.set()


@contextlib.asynccontextmanager
async def cleaned(state_dir: Path) -> AsyncIterator[Path]:
    """Whatever a test left running under a state directory is ended."""
    try:
        yield state_dir
    finally:
        await make_agent(state_dir, limits=Limits(0.3, 0.3)).stop_engines("the test is over")


class AgentProcess:
    """`llmgw agent` as a process."""

    def __init__(self, state_dir: Path, control: str, *flags: str) -> None:
        self._arguments = ("--state-dir", str(state_dir), "--control", control, *flags)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "llmgw", "agent", "--node-id", "n1", "--insecure"),
            *("--stop-grace-s", "1"),
            *self._arguments,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def signal(self, number: signal.Signals) -> int:
        """Signal it and wait for its end; returns its exit code."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)
        return await self._process.wait()


def is_gone(pid: int) -> bool:
    """Whether a process has ended; nobody may have reaped it yet."""
    stat = procfs.read_stat(pid)
    return stat is None or not stat.alive


async def until(happened: Callable[[], bool], what: str = "it") -> None:
    """Wait for a condition that has no event."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not happened():  # noqa: ASYNC110 - the condition lies outside this process
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{what} did not happen within {WAIT_S:g} s") from None
