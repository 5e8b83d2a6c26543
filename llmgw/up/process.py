"""One part as a real process: started, restarted when it dies by itself, stopped in order.

Guarantees: a part never outlives this program, not even if this one is killed (the kernel ends it
then); a terminal's Ctrl-C reaches this program only, so that parts are stopped in order. The
engines that an agent starts are not parts: they are in sessions of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from typing import TYPE_CHECKING

from llmgw.up.errors import PartFailedError, UpError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ha.clock import Clock
    from llmgw.up.parts import Part
    from llmgw.up.state import StateDir

RESTART_DELAY_S = 1.0
RESTART_DELAY_MAX_S = 30.0
STABLE_AFTER_S = 60.0
KILL_WAIT_S = 5.0
TAIL_BYTES = 16_384
TAIL_LINES = 12
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def restart_delay_s(delay_before_s: float, alive_s: float) -> float:
    """How long to wait before a part is started again.

    Args:
        delay_before_s: the delay before the start that just failed; 0 for the first.
        alive_s: how long the part lived; after a minute it counts as having been well.
    """
    if delay_before_s == 0 or alive_s >= STABLE_AFTER_S:
        return RESTART_DELAY_S
    return min(delay_before_s * 2, RESTART_DELAY_MAX_S)


class Supervised:
    """A part and its process."""

    def __init__(
        self, part: Part, state: StateDir, environment: Mapping[str, str], clock: Clock
    ) -> None:
        self.part = part
        self._state = state
        self._environment = environment
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._log_offset = 0
        self._started_s = 0.0

    @property
    def pid(self) -> int:
        """The pid of the current process, or of the last one."""
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process.

        Raises:
            UpError: the program cannot be run.
        """
        log = self._state.open_log(self.part.name)
        self._log_offset = os.fstat(log).st_size
        self._started_s = self._clock.now_s()
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)  # it died before the line above

        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.part.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self._environment),
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            raise UpError(f"cannot start {self.part.what}: {error}") from error
        finally:
            os.close(log)

    async def ended(self) -> int:
        """Wait until its process has ended; its exit code."""
        if self._process is None:
            raise AssertionError(f"{self.part.name} was never started")
        return await self._process.wait()

    def failure(self, exit_code: int) -> PartFailedError:
        """The error that says how it ended, with the last lines of its log."""
        path = self._state.logs / f"{self.part.name}.log"
        return PartFailedError(self.part.what, exit_code, str(path), self._last_lines())

    async def watch(
        self,
        may_restart: Callable[[], bool],
        say: Callable[[str], None],
        on_restart: Callable[[], None],
    ) -> None:
        """Start it again whenever it ends, until cancelled.

        Raises:
            PartFailedError: it ended while it may not be restarted yet.
        """
        delay_s = 0.0
        while True:
            exit_code = await self.ended()
            if not may_restart():
                raise self.failure(exit_code)
            delay_s = restart_delay_s(delay_s, self._clock.now_s() - self._started_s)
            say(f"{self.part.what} {how_it_ended(exit_code)}; starting it again in {delay_s:.0f} s")
            await asyncio.sleep(delay_s)
            await self.start()
            say(f"{self.part.what} runs again (pid {self.pid})")
            on_restart()

    async def stop(self) -> None:
        """Ask it to end, wait its grace, then kill it and what it left in its group."""
        if self._process is None:
            return
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.part.grace_s):
                    await self._process.wait()
        await self.kill()

    async def kill(self) -> None:
        """Kill it and its group at once, and reap it."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_WAIT_S):
                await self._process.wait()

    def _last_lines(self) -> list[str]:
        """The last lines that the current process wrote, not an earlier one."""
        path = self._state.logs / f"{self.part.name}.log"
        try:
            with path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._log_offset, end - TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return []
        return text.splitlines()[-TAIL_LINES:]


def how_it_ended(exit_code: int) -> str:
    """A part's end in words."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"
