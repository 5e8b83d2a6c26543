"""All shards of one agent: commands in, reports out, adoption at the start.

Guarantees: a command is decided against what is held at that moment and taken without waiting for
anything; every shard that an earlier agent left is known before `adopt` returns. Terms are not
checked here (`llmgw.agent.session` did). Processes that carry this state directory's launch token
but belong to no readable record are quarantined: reported, and left alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from llmgw.agent import procfs
from llmgw.agent.core.admission import Action, Decision, ShardCommand, decide
from llmgw.agent.processes import Identity, end_group
from llmgw.agent.shard import Limits, Shard, Surroundings
from llmgw.domain.messages import StartShard
from llmgw.domain.shard import Quarantined, ShardReport, ShardState
from llmgw.kit.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from ha.clock import Clock
    from llmgw.agent.engines.base import Engine
    from llmgw.agent.records import Record, Records
    from llmgw.kit.journal import Journal

FAILED_KEPT_MAX = 50

_log = get_logger(__name__)


class Supervisor:
    """Holds shards by id; their tasks live in `group`, and when it ends engines run on."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        *,
        node_id: str,
        address: str,
        engines: Mapping[str, Engine],
        records: Records,
        clock: Clock,
        journal: Journal,
        limits: Limits,
    ) -> None:
        self._records = records
        self._journal = journal
        self._limits = limits
        self._shards: dict[str, Shard] = {}
        self._quarantined: tuple[Quarantined, ...] = ()
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Callable[[ShardReport], None] | None = None
        self._around = Surroundings(
            node_id=node_id,
            address=address,
            engines=engines,
            records=records,
            clock=clock,
            limits=limits,
            on_change=self._changed,
        )
        self.problems: tuple[str, ...] = ()

    def inventory(self) -> tuple[ShardReport, ...]:
        """Every shard held, as it is now."""
        return tuple(shard.report() for shard in self._shards.values())

    def quarantined(self) -> tuple[Quarantined, ...]:
        """Unknown processes of ours that still run."""
        found = []
        for item in self._quarantined:
            pids = tuple(pid for pid in item.pids if procfs.launch_token(pid) == item.launch_token)
            if pids:
                found.append(dataclasses.replace(item, pids=pids))
        return tuple(found)

    def listen(self, listener: Callable[[ShardReport], None] | None) -> None:
        """Who hears of every change from now on; one at a time."""
        self._listener = listener

    def command(self, command: ShardCommand) -> Decision:
        """Take a command of an accepted term; the work goes on in the background."""
        held = {shard_id: shard.held() for shard_id, shard in self._shards.items()}
        decision = decide(command, held)
        if isinstance(command, StartShard):
            if decision.action is Action.START:
                self._keep(Shard(self._records.new(command.spec), self._around), runs=True)
            return decision
        if decision.action is Action.DRAIN:
            self._shards[command.shard_id].drain(command.reason)
        elif decision.action is Action.STOP:
            self._stop(self._shards[command.shard_id], command.reason)
        return decision

    def stop_all(self, reason: str) -> None:
        """Stop every engine of this state directory, quarantined ones too; returns at once."""
        for shard in list(self._shards.values()):
            self._stop(shard, reason)
        for item in self._quarantined:
            self._spawn(self._end_quarantined(item))

    def release(self) -> None:
        """Let go of every shard; engines run on."""
        for task in self._tasks:
            task.cancel()

    # ---- shards ------------------------------------------------------------------------------

    def _keep(self, shard: Shard, *, runs: bool) -> None:
        self._shards[shard.record.spec.shard_id] = shard
        if runs:
            self._spawn(shard.run())
        self._changed(shard)
        failed = [s for s in self._shards.values() if s.state is ShardState.FAILED]
        for surplus in failed[: max(0, len(failed) - FAILED_KEPT_MAX)]:
            self._stop(surplus, "the oldest of too many failures")

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop(self, shard: Shard, reason: str) -> None:
        if shard.state is ShardState.FAILED:
            self._spawn(shard.forget(reason))
        else:
            shard.stop(reason)

    def _changed(self, shard: Shard) -> None:
        report = shard.report()
        spec = report.spec
        facts = {"shard_id": spec.shard_id, "state": str(report.state), "reason": report.reason}
        log = _log.warning if report.state is ShardState.FAILED else _log.info
        log("shard", replica_id=spec.replica_id, pid=report.pid, **facts)
        self._journal.write(
            "shard", pid=report.pid, process_start_ticks=report.process_start_ticks, **facts
        )
        # The same shard id may have been started anew meanwhile.
        if report.state is ShardState.STOPPED and self._shards.get(spec.shard_id) is shard:
            del self._shards[spec.shard_id]
        if self._listener is not None:
            self._listener(report)

    # ---- adoption ----------------------------------------------------------------------------

    async def adopt(self) -> None:
        """Take over everything an earlier agent left; call it once, before any command."""
        records, unreadable = await asyncio.to_thread(self._records.load)
        carriers = await asyncio.to_thread(self._carriers)
        self.problems = tuple(str(problem) for problem in unreadable)
        for record in records:
            found = carriers.pop(record.launch_token, [])
            await self._adopt_one(record, found)
        self._quarantined = tuple(
            Quarantined(token, tuple(stat.pid for stat in stats), "no readable record names it")
            for token, stats in carriers.items()
        )
        for problem in self.problems:
            _log.warning("record_unreadable", problem=problem)
        for item in self._quarantined:
            _log.warning("quarantined", launch_token=item.launch_token, pids=item.pids)

    async def _adopt_one(self, record: Record, carriers: list[procfs.ProcessStat]) -> None:
        if record.state is ShardState.FAILED:
            self._keep(Shard(record, self._around), runs=False)
            return
        identity = record.identity
        if identity is None:
            # The agent died between the spawn and the second record: the token tells.
            if not carriers:
                shard = Shard(record, self._around)
                self._keep(shard, runs=False)
                await shard.fail("the agent ended before the engine was started")
                return
            # The front may have died since: what it left is of its group, and is to be ended.
            front = next((stat for stat in carriers if stat.pid == stat.group), carriers[0])
            start_ticks = front.start_ticks if front.pid == front.group else 0
            identity = Identity(
                procfs.boot_id(), front.group, start_ticks, front.group, record.launch_token
            )
            # A disk that was full kept the older state: with a process it is not pending.
            pending = record.state is ShardState.PENDING
            state = ShardState.STARTING if pending else record.state
            record = dataclasses.replace(record, identity=identity, state=state)
            await self._records.save(record)
        shard = Shard(record, self._around)
        await shard.adopt(identity)
        self._keep(shard, runs=True)

    def _carriers(self) -> dict[str, list[procfs.ProcessStat]]:
        """Live processes with a launch token of this state directory, by token."""
        found: dict[str, list[procfs.ProcessStat]] = {}
        for stat in procfs.all_stats():
            token = procfs.launch_token(stat.pid) if stat.alive else None
            if token is not None and self._records.is_ours(token):
                found.setdefault(token, []).append(stat)
        return found

    async def _end_quarantined(self, item: Quarantined) -> None:
        for pid in item.pids:
            if (stat := procfs.read_stat(pid)) is not None:
                identity = Identity(
                    procfs.boot_id(), pid, stat.start_ticks, stat.group, item.launch_token
                )
                await end_group(identity, self._limits.stop_grace_s)
