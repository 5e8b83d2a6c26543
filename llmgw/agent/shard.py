"""One shard at work: start its engine, wait until it is ready, watch it, drain it, stop it.

Guarantees: the record is durable before the engine is started; STOPPED and FAILED are reported
only when no process of the shard is left; a failed engine is not started again (the leader
decides). Never waits for the network of the management side. When its task is cancelled the
engine runs on.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw.agent import procfs
from llmgw.agent.core.admission import Held
from llmgw.agent.core.supervisor import ShardLife
from llmgw.agent.engines.base import Health
from llmgw.agent.errors import StartError
from llmgw.agent.output import last_lines
from llmgw.agent.probe import base_url, http_status, port_problem
from llmgw.agent.processes import EngineProcess, Identity, members, spawn
from llmgw.domain.shard import ShardState
from llmgw.kit.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ha.clock import Clock
    from llmgw.agent.engines.base import Engine, Launch
    from llmgw.agent.records import Record, Records
    from llmgw.domain.shard import ShardReport

_log = get_logger(__name__)

PROBE_INTERVAL_S = 0.1
DRAIN_INTERVAL_S = 0.2
DRAIN_QUIET_S = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, in seconds.

    `stop_grace_s` lies between TERM and KILL, `drain_timeout_s` is the cap of a drain.
    """

    stop_grace_s: float = 15.0
    drain_timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every shard of an agent shares."""

    node_id: str
    address: str
    engines: Mapping[str, Engine]
    records: Records
    clock: Clock
    limits: Limits
    on_change: Callable[[Shard], None]


class Shard:
    """One shard. `report()` is how it is now; `run()` is its life."""

    def __init__(self, record: Record, around: Surroundings) -> None:
        self.record = record
        self._around = around
        self._life = ShardLife(record.spec.shard_id, record.state, record.reason or "accepted")
        self._process: EngineProcess | None = None
        self._ending = asyncio.Event()
        self._cut_short = asyncio.Event()
        self._overdue = asyncio.Event()
        self._end_reason = ""
        if record.state is ShardState.DRAINING:
            # An earlier agent was at it, and requests may still be under way: go on with it.
            self.drain(record.reason)

    @property
    def state(self) -> ShardState:
        """The present state."""
        return self._life.state

    def held(self) -> Held:
        """How commands see it: from the moment a stop was taken it is on its way out."""
        ending = self._ending.is_set() and not self.state.is_over
        state = ShardState.DRAINING if ending else self.state
        return Held(self.record.spec.replica_id, state)

    def report(self) -> ShardReport:
        """The shard as it is now."""
        record, ready = self.record, self.state is ShardState.READY
        ready_for_s = self._around.clock.now_s() - record.ready_s if ready else 0.0
        return dataclasses.replace(record.report(self._life.reason, ready_for_s), state=self.state)

    def drain(self, reason: str) -> None:
        """Let it finish its requests, then stop it."""
        if not self._ending.is_set():
            self._end_reason = reason
            self._ending.set()

    def stop(self, reason: str) -> None:
        """Stop it now; cuts a drain short."""
        self.drain(reason)
        self._cut_short.set()

    async def adopt(self, identity: Identity) -> None:
        """Take over what an earlier agent started; a dead engine is not ready from here on."""
        self._process = EngineProcess(identity)
        alive = await asyncio.to_thread(identity.is_alive)
        if not alive and self.state is not ShardState.DRAINING:
            await self._move(ShardState.DRAINING, "its front process ended while no agent watched")

    async def fail(self, reason: str) -> None:
        """There is no engine, and nothing to clean up."""
        output = last_lines(Path(self.record.output))
        if output:
            reason = f"{reason}; last line: {output[-1]}"
        self._note(last_output=output)
        await self._move(ShardState.FAILED, reason)

    async def forget(self, reason: str) -> None:
        """The leader has heard of the failure."""
        if self.state is ShardState.FAILED:
            await self._move(ShardState.STOPPED, reason)

    async def run(self) -> None:
        """Live until nothing is left of the engine; the last state is STOPPED or FAILED."""
        try:
            if self._process is not None or await self._start():
                await self._watch()
        except (StartError, OSError) as error:
            await self.fail(str(error))
        finally:
            if self._process is not None:
                self._process.release()

    # ---- start -------------------------------------------------------------------------------

    async def _start(self) -> bool:
        """Returns whether there is an engine to watch; a stop may have come first."""
        spec, around = self.record.spec, self._around
        await around.records.save(self.record)
        if self._ending.is_set():
            await self._move(ShardState.STOPPED, self._end_reason)
            return False
        engine = self._engine()
        try:
            launch = await asyncio.to_thread(engine.launch, spec, around.address)
        except StartError as error:
            raise StartError(f"{error} on node {around.node_id}") from error
        if problem := port_problem(around.address, spec.http_port):
            raise StartError(f"port {spec.http_port} of {around.address} is taken: {problem}")
        self._note(started_s=around.clock.now_s())
        await self._move(ShardState.STARTING, f"running {launch.argv[0]}")
        self._process = await self._spawn(launch)
        self._note(identity=self._process.identity)
        await self._save()
        around.on_change(self)
        return True

    async def _spawn(self, launch: Launch) -> EngineProcess:
        """Not to be left half done: an agent that is told to stop just now still takes note."""
        spawning = asyncio.create_task(
            asyncio.to_thread(
                spawn,
                launch.argv,
                launch.environment,
                output=Path(self.record.output),
                folder=self._around.records.state_dir,
                token=self.record.launch_token,
            )
        )
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            process = await spawning
            self._note(identity=process.identity)
            await self._save()
            process.release()
            raise

    def _engine(self) -> Engine:
        name = self.record.spec.profile.engine
        if (engine := self._around.engines.get(name)) is None:
            known = ", ".join(sorted(self._around.engines))
            raise StartError(
                f"unknown engine {name!r} on node {self._around.node_id}; this agent has: {known}"
            )
        return engine

    # ---- watch -------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Until the engine dies, is to end, or is not ready in time."""
        if (process := self._process) is None:
            raise AssertionError("nothing to watch")
        process.watch()
        async with asyncio.TaskGroup() as group:
            waiting = [
                group.create_task(process.exited.wait()),
                group.create_task(self._ending.wait()),
                group.create_task(self._overdue.wait()),
            ]
            probing = group.create_task(self._become_ready())
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in (*waiting, probing):
                task.cancel()
        if self._ending.is_set():
            await self._end(process)
        elif process.exited.is_set():
            await self._died(process)
        else:
            budget_s = self.record.spec.profile.startup_timeout_s
            await self._give_up(process, f"not ready within {budget_s:g} s")

    async def _become_ready(self) -> None:
        """Probe until ready; past its budget the shard is overdue."""
        record, clock = self.record, self._around.clock
        engine = self._around.engines.get(record.spec.profile.engine)
        if self.state not in {ShardState.STARTING, ShardState.LOADING} or engine is None:
            return
        url = base_url(self._around.address, record.spec.http_port)
        while clock.now_s() < record.started_s + record.spec.profile.startup_timeout_s:
            health = await engine.health(url, http_status)
            if health is Health.READY:
                self._note(ready_s=clock.now_s())
                await self._move(ShardState.READY, "answers")
                return
            if health is Health.LOADING and self.state is ShardState.STARTING:
                await self._move(ShardState.LOADING, "answers, but is not ready")
            await asyncio.sleep(PROBE_INTERVAL_S)
        self._overdue.set()

    # ---- end ---------------------------------------------------------------------------------

    async def _end(self, process: EngineProcess) -> None:
        """Drain unless cut short, then stop."""
        serves = self.state in {ShardState.READY, ShardState.DRAINING}
        draining = serves and not self._cut_short.is_set()
        if self.state is not ShardState.DRAINING:
            await self._move(ShardState.DRAINING, self._end_reason)
        if draining:
            await self._drained(process)
        await process.end(self._around.limits.stop_grace_s)
        process.reap()
        await self._move(ShardState.STOPPED, self._end_reason)

    async def _drained(self, process: EngineProcess) -> None:
        """Wait for quiet on the port: the cap, a stop or the engine's own end come first."""
        quiet_since_s: float | None = None
        place, clock = (self._around.address, self.record.spec.http_port), self._around.clock
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._around.limits.drain_timeout_s):
                while not self._cut_short.is_set() and not process.exited.is_set():
                    if await asyncio.to_thread(procfs.established_connections, *place):
                        quiet_since_s = None
                    elif quiet_since_s is None:
                        quiet_since_s = clock.now_s()
                    elif clock.now_s() - quiet_since_s >= DRAIN_QUIET_S:
                        return
                    await asyncio.sleep(DRAIN_INTERVAL_S)

    async def _died(self, process: EngineProcess) -> None:
        """The front process is dead; its group may live on, and holds what it held."""
        away = self.state is ShardState.DRAINING
        left = await asyncio.to_thread(members, process.identity)
        if left and not away:
            reason = f"its front process ended; ending {len(left)} left behind"
            await self._move(ShardState.DRAINING, reason)
        await process.end(self._around.limits.stop_grace_s)
        code = process.reap()
        self._note(exit_code=code)
        await self.fail(exit_reason(code) + (" while no agent watched" if away else ""))

    async def _give_up(self, process: EngineProcess, reason: str) -> None:
        await self._move(ShardState.DRAINING, reason)
        await process.end(self._around.limits.stop_grace_s)
        process.reap()
        await self.fail(reason)

    # ---- records -----------------------------------------------------------------------------

    def _note(self, **facts: object) -> None:
        self.record = dataclasses.replace(self.record, **facts)  # type: ignore[arg-type]

    async def _move(self, state: ShardState, reason: str) -> None:
        """Change state, in memory at once, then on disk, then tell."""
        self._life.move(state, reason)
        self._note(state=state, reason=reason)
        if state is ShardState.STOPPED:
            await self._around.records.remove(self.record.spec.shard_id)
        else:
            await self._save()
        self._around.on_change(self)

    async def _save(self) -> None:
        """A full disk must not end a running engine; a later agent knows it by its token."""
        try:
            await self._around.records.save(self.record)
        except OSError as error:
            _log.warning("record_not_saved", shard_id=self.record.spec.shard_id, error=str(error))


def exit_reason(code: int | None) -> str:
    """Why an engine is dead, from its exit code (negative: a signal; None: unknown)."""
    if code is None:
        return "the engine ended"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"the engine was ended by {signal.Signals(-code).name}"
    return f"the engine exited with code {code}"
