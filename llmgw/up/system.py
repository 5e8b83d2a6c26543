"""All parts of one system: started in order, watched, stopped in order.

While the system comes up, a part that ends is a failure of the whole; afterwards it is started
again. Stopping goes against the flow of work: router, control planes, agents, engines, etcd, so
that nothing is told to stop by something that is itself half gone. At the end no process that
this system started is left; engines stay only when they are to be kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw.up import parts
from llmgw.up.errors import UpError
from llmgw.up.process import Supervised

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ha.clock import Clock
    from llmgw.up.console import Console
    from llmgw.up.layout import Layout, Listener, Node
    from llmgw.up.state import StateDir

ENGINES_STOP_TIMEOUT_S = 60.0
_PROC = Path("/proc")


class System:
    """The parts of one `up`."""

    def __init__(
        self,
        layout: Layout,
        state: StateDir,
        etcd_binary: str,
        console: Console,
        clock: Clock,
        *,
        journal: bool,
    ) -> None:
        self.layout = layout
        self.is_up = False
        self.on_restart: Callable[[], None] = lambda: None
        self._watching: list[asyncio.Task[None]] = []
        self._state = state
        self._console = console
        self._environment = parts.environment(os.environ, state.path)
        folder = state.path
        journals = state.journals if journal else None

        def supervised(part: parts.Part) -> Supervised:
            return Supervised(part, state, self._environment, clock)

        self.etcd = [
            supervised(parts.etcd_part(etcd_binary, member, layout, folder))
            for member in layout.etcd
        ]
        self.control_planes = [
            supervised(parts.control_part(plane, layout, journals))
            for plane in layout.control_planes
        ]
        self.agents = [
            supervised(parts.agent_part(node, layout, folder, journals)) for node in layout.nodes
        ]
        self.router = [supervised(parts.router_part(layout, folder, journals))]

    @property
    def pids(self) -> dict[str, int]:
        """The pid of every part by its name."""
        groups = (self.etcd, self.control_planes, self.agents, self.router)
        return {member.part.name: member.pid for group in groups for member in group}

    async def start(self, group: Sequence[Supervised], tasks: asyncio.TaskGroup) -> None:
        """Start some parts and watch them from now on."""
        for member in group:
            await member.start()
            watch = member.watch(lambda: self.is_up, self._console.say, self._restarted)
            self._watching.append(tasks.create_task(watch))

    def stop_watching(self) -> None:
        """From now on parts may end."""
        for task in self._watching:
            task.cancel()

    def _restarted(self) -> None:
        self.on_restart()

    async def stop(self, *, keep_engines: bool) -> None:
        """Stop everything in order; watching must have ended."""
        await self._stop_group("the router", self.router)
        await self._stop_group("control planes", self.control_planes)
        await self._stop_group("agents", self.agents)
        if keep_engines:
            self._console.say("engines are left running for the next `llmgw up` to adopt")
        else:
            await self._stop_engines()
        await self._stop_group("etcd", self.etcd)

    async def kill(self, *, keep_engines: bool) -> None:
        """End everything at once."""
        groups = (self.router, self.control_planes, self.agents, self.etcd)
        await asyncio.gather(*(member.kill() for group in groups for member in group))
        if not keep_engines:
            kill_marked(self._state.path)

    async def _stop_group(self, what: str, group: Sequence[Supervised]) -> None:
        if any(member.running for member in group):
            self._console.say(f"stopping {what} ...")
        await asyncio.gather(*(member.stop() for member in group))

    async def _stop_engines(self) -> None:
        if not any(member.pid for member in self.agents):
            return  # no agent was started, so no engine was
        self._console.say("stopping engines ...")
        await asyncio.gather(*(self._stop_engines_of(node) for node in self.layout.nodes))
        if left := kill_marked(self._state.path, besides={p.pid for p in self.etcd}):
            self._console.say(f"killed {left} process(es) that did not stop")

    async def _stop_engines_of(self, node: Node) -> None:
        argv = parts.stop_engines_argv(node, self._state.path)
        log = self._state.open_log(node.node_id)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        finally:
            os.close(log)
        try:
            async with asyncio.timeout(ENGINES_STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            self._console.say(f"engines of {node.node_id} did not stop in time")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def check_free(listeners: Sequence[Listener]) -> None:
    """Make sure that every address can be listened on.

    Raises:
        UpError: one is taken; it names the port, whose it is, and the way out.
    """
    for listener in listeners:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((listener.host, listener.port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise UpError(
                        f"cannot listen on {listener.host}:{listener.port} ({listener.what}): "
                        f"{error.strerror}"
                    ) from error
                where = f"port {listener.port} ({listener.what})"
                if listener.host != "127.0.0.1":
                    where = f"port {listener.port} on {listener.host} ({listener.what})"
                raise UpError(f"{where} is taken by another program; use --port-base") from error


def marked_processes(state_dir: Path) -> list[int]:
    """Every process that a system with this state directory started, at any remove."""
    wanted = f"{parts.MARKER}={state_dir}".encode()
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def kill_marked(state_dir: Path, besides: set[int] | None = None) -> int:
    """Kill what is left of a system; returns how many processes that were."""
    left = [pid for pid in marked_processes(state_dir) if pid not in (besides or set())]
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(left)
