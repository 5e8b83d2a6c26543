"""Engine processes: spawned into a session of their own, watched, signalled by group.

Guarantees: output goes to a file, never to a pipe of the agent, so that an engine outlives it; a
process is signalled only while it is certainly the one that was started (its group still has a
member with our launch token, or its identity holds). Processes that are not ours are not touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.agent import procfs
from llmgw.agent.errors import StartError
from llmgw.kit.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_log = get_logger(__name__)

POLL_INTERVAL_S = 0.05
WATCH_INTERVAL_S = 0.5  # only where the kernel has no pidfd
KILLS_PER_WARNING = 200


@dataclass(frozen=True, slots=True)
class Identity:
    """What names one process for good: a pid alone may be somebody else's by now."""

    boot_id: str
    pid: int
    start_ticks: int
    process_group: int
    launch_token: str

    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        if self.boot_id != procfs.boot_id():
            return False
        stat = procfs.read_stat(self.pid)
        if stat is None or not stat.alive or not self.fits(stat):
            return False
        # Some engines overwrite their environment with a title: no token is no contradiction.
        return procfs.launch_token(self.pid) in (None, self.launch_token)

    def fits(self, stat: procfs.ProcessStat) -> bool:
        """Whether a stat, a zombie's too, is of this process."""
        return (stat.pid, stat.start_ticks, stat.group) == (
            self.pid,
            self.start_ticks,
            self.process_group,
        )


class EngineProcess:
    """One running engine, our own child or adopted. `exited` is set when its front is dead."""

    def __init__(self, identity: Identity, child: subprocess.Popen[bytes] | None = None) -> None:
        self.identity = identity
        self.exited = asyncio.Event()
        self._child = child
        self._descriptor: int | None = None
        self._poller: asyncio.Task[None] | None = None

    def reap(self) -> int | None:
        """The exit code, negative for a signal; None for one that was adopted, or still runs.

        Call it after the group has ended: until then the dead front keeps the group's id ours.
        """
        return None if self._child is None else self._child.poll()

    def watch(self) -> None:
        """Start watching; needs a running loop."""
        try:
            self._descriptor = os.pidfd_open(self.identity.pid)
        except ProcessLookupError:
            self._on_exit()
            return
        except OSError:
            self._poller = asyncio.create_task(self._poll())
            return
        # The pid may have changed hands before the descriptor was opened, not afterwards.
        if self._child is None and not self.identity.is_alive():
            self._on_exit()
            return
        asyncio.get_running_loop().add_reader(self._descriptor, self._on_exit)

    def release(self) -> None:
        """Stop watching; the engine runs on."""
        self._unwatch()
        if self._child is not None and self._child.returncode is None:
            # Left running on purpose: Popen would warn about a child nobody waits for.
            self._child.returncode = 0

    async def end(self, grace_s: float) -> None:
        """TERM to the group, a grace, then KILL; returns when no member is left."""
        await end_group(self.identity, grace_s)
        await self.exited.wait()

    def _on_exit(self) -> None:
        self._unwatch()
        self.exited.set()

    def _unwatch(self) -> None:
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
        if self._poller is not None:
            self._poller.cancel()
            self._poller = None

    async def _poll(self) -> None:
        while self.identity.is_alive():  # noqa: ASYNC110 - the kernel has no event for this
            await asyncio.sleep(WATCH_INTERVAL_S)
        self._poller = None
        self._on_exit()


def spawn(
    argv: Sequence[str], environment: Mapping[str, str], *, output: Path, folder: Path, token: str
) -> EngineProcess:
    """Start a program in a session and process group of its own.

    Raises:
        StartError: there is no such program, or it may not be run.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if name[:6] != "LLMGW_"}
    with output.open("ab") as file:
        try:
            child = subprocess.Popen(  # noqa: S603 - the catalog says what to run
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**inherited, **environment, procfs.LAUNCH_TOKEN: token},
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise StartError(f"command not found: {argv[0]}") from error
        except (OSError, ValueError) as error:
            raise StartError(f"cannot run {argv[0]}: {error}") from error
    # Not yet reaped, so its stat is there even if it has exited at once.
    stat = procfs.read_stat(child.pid)
    start_ticks = stat.start_ticks if stat is not None else 0
    identity = Identity(procfs.boot_id(), child.pid, start_ticks, child.pid, token)
    return EngineProcess(identity, child)


def members(identity: Identity) -> list[procfs.ProcessStat]:
    """Live processes of this launch: its group, and those that left the group with our token.

    A group id cannot be given away while a member lives, so one member with the token, or the
    front itself (a zombie too), proves the group ours; else it may belong to somebody else.
    """
    if identity.boot_id != procfs.boot_id():
        return []
    group: list[procfs.ProcessStat] = []
    carriers: list[procfs.ProcessStat] = []
    ours = False
    for stat in procfs.all_stats():
        ours = ours or identity.fits(stat)
        if not stat.alive:
            continue
        if procfs.launch_token(stat.pid) == identity.launch_token:
            carriers.append(stat)
        elif stat.group == identity.process_group:
            group.append(stat)
    ours = ours or any(stat.group == identity.process_group for stat in carriers)
    return carriers + (group if ours else [])


async def end_group(identity: Identity, grace_s: float) -> None:
    """End every process of a launch: TERM, up to `grace_s` seconds, KILL until nobody is left.

    A process stuck in the kernel survives KILL for a while: this waits on, and says so, because
    what the process holds (a port, a GPU) is not free before it is gone.
    """
    if not await _signal(identity, signal.SIGTERM):
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            await _gone(identity)
            return
    # A member may fork between the look and the signal, so the signal is repeated.
    for attempt in itertools.count(1):
        if not await _signal(identity, signal.SIGKILL):
            return
        if attempt % KILLS_PER_WARNING == 0:
            _log.warning("survives_kill", pid=identity.pid, group=identity.process_group)
        await asyncio.sleep(POLL_INTERVAL_S)


async def _gone(identity: Identity) -> None:
    while await asyncio.to_thread(members, identity):  # noqa: ASYNC110 - the kernel has no event for this
        await asyncio.sleep(POLL_INTERVAL_S)


async def _signal(identity: Identity, number: signal.Signals) -> bool:
    found = await asyncio.to_thread(members, identity)
    if any(stat.group == identity.process_group for stat in found):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(identity.process_group, number)
    for stat in found:
        if stat.group != identity.process_group:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stat.pid, number)
    return bool(found)
