"""One stream's writer: bounded, one at a time, and leadership checked right before every write."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from llmgw.control.errors import CommandError
from llmgw.control.session import QUEUE_MAX, Session
from llmgw.control.sessions import Sessions
from llmgw.domain.messages import LeaderHeartbeat, Register, StopShard, Up
from llmgw.kit.journal import Journal
from llmgw.wire.link import RefusalKind, RefusedError
from tests.support.fleet import facts
from tests.support.virtual import LoopClock, run_virtual

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from llmgw.domain.messages import Down
    from llmgw.wire.link import Hello

STOP = StopShard("r", "s", "why")


class FakeLeadership:
    """Leads until told otherwise."""

    def __init__(self) -> None:
        self.term = 3
        self.leads = True
        self.ended = asyncio.Event()

    def is_leader(self) -> bool:
        return self.leads and not self.ended.is_set()


class FakeStream:
    """Takes what is written; a closed gate is a peer that does not read."""

    authenticated = False
    common_name = None
    peer = "test"

    def __init__(self) -> None:
        self.sent: list[Down] = []
        self.said: asyncio.Queue[Up | None] = asyncio.Queue()
        self.greeted: Hello | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def hello(self, hello: Hello) -> None:
        self.greeted = hello

    async def receive(self) -> Up | None:
        return await self.said.get()

    async def send(self, down: Down) -> None:
        await self.gate.wait()
        self.sent.append(down)

    @property
    def commands(self) -> list[Down]:
        return [down for down in self.sent if not isinstance(down.body, LeaderHeartbeat)]

    @property
    def beats(self) -> list[LeaderHeartbeat]:
        return [down.body for down in self.sent if isinstance(down.body, LeaderHeartbeat)]


class Bench:
    """A session with its writer at work, on virtual time."""

    def __init__(self, journal: Path | None = None) -> None:
        self.leadership = FakeLeadership()
        self.stream = FakeStream()
        self._tick = 0
        self.session = Session(
            "node-a",
            1,
            self.stream,
            self.leadership,  # type: ignore[arg-type]  # likewise
            LoopClock(),
            heartbeat_interval_s=4.0,
            next_tick=self.next_tick,
            journal=Journal(journal),
        )

    def next_tick(self) -> int:
        self._tick += 1
        return self._tick

    def lead(self, *, leads: bool) -> None:
        self.leadership.leads = leads
        self.session.wake()

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.session.write())
        try:
            yield
        finally:
            self.session.close(None)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_commands_leave_in_order_with_term_and_an_id_of_their_own() -> None:
    async def scenario() -> None:
        bench = Bench()
        async with bench.writing():
            first = bench.session.send(STOP)
            second = bench.session.send(StopShard("r", "s2", "why"))
            await asyncio.sleep(0.1)
        assert [down.message_id for down in bench.stream.sent] == [first, second]
        assert {down.term for down in bench.stream.sent} == {3}
        assert first != second

    run_virtual(scenario())


def test_a_full_queue_is_an_error_and_not_a_wait() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.stream.gate.clear()
        async with bench.writing():
            bench.session.send(STOP)
            await asyncio.sleep(0.1)
            for _ in range(QUEUE_MAX):
                bench.session.send(STOP)
            with pytest.raises(CommandError, match="not keeping up"):
                bench.session.send(STOP)
            assert bench.session.queued == QUEUE_MAX

    run_virtual(scenario())


def test_more_commands_than_the_queue_holds_do_not_hang() -> None:
    """The writer empties the queue while it is being filled, or the command fails: never a hang."""

    async def scenario() -> None:
        bench = Bench()
        async with bench.writing():
            queued = failed = 0
            for _ in range(3 * QUEUE_MAX):
                try:
                    bench.session.send(STOP)
                    queued += 1
                except CommandError:
                    failed += 1
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
        assert len(bench.stream.commands) == queued
        assert failed > 0

    run_virtual(scenario())


def test_leadership_is_checked_right_before_the_write() -> None:
    """Queued while leading, not yet written when it ends: it does not leave."""

    async def scenario() -> None:
        bench = Bench()
        bench.stream.gate.clear()
        async with bench.writing():
            bench.session.send(STOP)
            await asyncio.sleep(0.1)
            bench.session.send(StopShard("r", "late", "why"))
            bench.leadership.ended.set()
            bench.stream.gate.set()
            await asyncio.sleep(60.0)
        assert [down.body for down in bench.stream.sent] == [STOP]

    run_virtual(scenario())


def test_while_frozen_only_heartbeats_leave_and_they_say_so() -> None:
    async def scenario() -> None:
        bench = Bench()
        async with bench.writing():
            await asyncio.sleep(0.1)
            bench.lead(leads=False)
            await asyncio.sleep(0.0)
            bench.session.send(STOP)
            await asyncio.sleep(13.0)
            assert bench.stream.commands == []
            assert [beat.frozen for beat in bench.stream.beats] == [True] * 4
            bench.lead(leads=True)
            await asyncio.sleep(0.1)
            assert bench.stream.beats[-1].frozen is False
            assert [down.body for down in bench.stream.commands] == [STOP]

    run_virtual(scenario())


def test_heartbeats_go_out_every_period_with_a_tick_that_moves() -> None:
    async def scenario() -> None:
        bench = Bench()
        async with bench.writing():
            await asyncio.sleep(20.5)
        ticks = [beat.loop_tick for beat in bench.stream.beats]
        assert ticks == [1, 2, 3, 4, 5]
        assert not any(beat.frozen for beat in bench.stream.beats)

    run_virtual(scenario())


def test_a_busy_queue_does_not_starve_heartbeats() -> None:
    async def scenario() -> None:
        bench = Bench()
        async with bench.writing():
            for _ in range(200):
                bench.session.send(STOP)
                await asyncio.sleep(0.1)
        assert len(bench.stream.beats) >= 4

    run_virtual(scenario())


def test_what_is_sent_is_recorded_and_heartbeats_only_when_they_change(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path / "journal")
        async with bench.writing():
            bench.session.send(STOP)
            await asyncio.sleep(9.0)
            bench.lead(leads=False)
            await asyncio.sleep(9.0)

    run_virtual(scenario())
    records = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    assert [(record["event"], record["kind"]) for record in records] == [
        ("send", "stop_shard"),
        ("send", "heartbeat"),
    ]
    assert (records[0]["term"], records[0]["node_id"]) == (3, "node-a")
    assert records[0]["message_id"]


def test_nothing_is_queued_on_an_ended_stream() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.session.close(None)
        with pytest.raises(CommandError, match="no agent connected"):
            bench.session.send(STOP)

    run_virtual(scenario())


# ---- all streams of a term ----------------------------------------------------------------------


class Hall:
    """`Sessions` with fakes around it."""

    def __init__(self) -> None:
        self.leadership = FakeLeadership()
        self.events: list[Any] = []
        self.admitted: list[str] = []
        self.sessions = Sessions(
            self.leadership,  # type: ignore[arg-type]  # a fake with the same methods
            LoopClock(),
            leader_id="cp1",
            heartbeat_interval_s=4.0,
            on_event=self.events.append,
            admit=self.admit,
            on_higher_term=self.events.append,
            journal=Journal(None),
        )

    async def admit(self, node_id: str) -> None:
        self.admitted.append(node_id)

    async def attach(self, node_id: str = "node-a") -> tuple[FakeStream, asyncio.Task[None]]:
        stream = FakeStream()
        stream.said.put_nowait(Up(0, Register(node_id, facts())))
        task = asyncio.create_task(self.sessions.serve(stream))
        await asyncio.sleep(0.1)
        return stream, task

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


async def ended(task: asyncio.Task[None]) -> RefusedError | None:
    (result,) = await asyncio.gather(task, return_exceptions=True)
    assert result is None or isinstance(result, RefusedError)
    return result


def test_a_node_is_opened_after_its_inventory_was_taken_and_it_is_on_the_roster() -> None:
    async def scenario() -> None:
        hall = Hall()
        stream, task = await hall.attach()
        assert hall.kinds == ["Registered", "Opened"]
        assert hall.admitted == ["node-a"]
        stream.said.put_nowait(None)
        assert await ended(task) is None
        assert hall.kinds[-1] == "Disconnected"

    run_virtual(scenario())


def test_the_reader_of_a_replaced_stream_ends_with_it() -> None:
    async def scenario() -> None:
        hall = Hall()
        old, old_task = await hall.attach()
        _, new_task = await hall.attach()
        refused = await ended(old_task)
        assert refused is not None
        assert "replaced" in refused.reason
        before = len(hall.events)
        old.said.put_nowait(Up(0, Register("node-a", facts())))
        await asyncio.sleep(0.1)
        assert len(hall.events) == before
        assert "Disconnected" not in hall.kinds
        hall.sessions.close_all(RefusedError(RefusalKind.UNAVAILABLE, "the end"))
        await ended(new_task)
        assert hall.kinds[-1] == "Disconnected"

    run_virtual(scenario())


def test_a_command_for_a_node_without_a_stream_fails() -> None:
    async def scenario() -> None:
        hall = Hall()
        with pytest.raises(CommandError, match="no agent connected for node node-a"):
            hall.sessions.send("node-a", STOP)

    run_virtual(scenario())


def test_a_command_is_not_queued_without_leadership() -> None:
    async def scenario() -> None:
        hall = Hall()
        _, task = await hall.attach()
        hall.leadership.leads = False
        with pytest.raises(CommandError, match="may not command"):
            hall.sessions.send("node-a", STOP)
        hall.sessions.close_all(RefusedError(RefusalKind.UNAVAILABLE, "the end"))
        await ended(task)

    run_virtual(scenario())


def test_drain_waits_for_what_is_queued_but_not_for_ever() -> None:
    async def scenario() -> None:
        hall = Hall()
        stream, task = await hall.attach()
        stream.gate.clear()
        for _ in range(3):
            hall.sessions.send("node-a", STOP)
        assert not await hall.sessions.drain(0.3)
        stream.gate.set()
        assert await hall.sessions.drain(0.3)
        assert len(stream.commands) >= 2
        hall.sessions.close_all(RefusedError(RefusalKind.UNAVAILABLE, "the end"))
        await ended(task)

    run_virtual(scenario())


def test_a_peer_that_never_speaks_is_refused_in_time() -> None:
    async def scenario() -> None:
        hall = Hall()
        stream = FakeStream()
        task = asyncio.create_task(hall.sessions.serve(stream))
        refused = await ended(task)
        assert refused is not None
        assert refused.kind is RefusalKind.INVALID_ARGUMENT
        assert asyncio.get_running_loop().time() == pytest.approx(10.0, abs=0.1)

    run_virtual(scenario())


def test_a_stream_that_breaks_while_being_written_ends_and_is_told() -> None:
    async def scenario() -> None:
        hall = Hall()
        stream, task = await hall.attach()

        async def broken(down: Down) -> None:
            del down
            raise RuntimeError("connection reset")

        stream.send = broken  # type: ignore[method-assign]
        hall.sessions.send("node-a", STOP)
        await ended(task)
        assert hall.kinds[-1] == "Disconnected"
        assert not hall.sessions.connected

    run_virtual(scenario())
