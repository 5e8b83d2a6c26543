"""Finding the leader, keeping to its term, and noticing when it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from llmgw.agent.core.dialling import Target
from llmgw.agent.search import HELLO_TIMEOUT_S, ControlName, Search, resolve
from llmgw.domain.messages import (
    CommandResult,
    LeaderHeartbeat,
    StartShard,
    StopShard,
)
from llmgw.wire.link import GrpcDialer, RefusedError, TlsFiles
from tests.support.agents import free_port, make_agent, paced_spec, running, until
from tests.support.certs import TestCa
from tests.support.fake_leader import FakeLeader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


@contextlib.asynccontextmanager
async def three(port: int) -> AsyncIterator[list[FakeLeader]]:
    """Three standbys on one port of three addresses."""
    planes = [FakeLeader(leading=False, leader_id=f"cp{i}") for i in range(3)]
    for plane, host in zip(planes, HOSTS, strict=True):
        await plane.start(host, port)
    try:
        yield planes
    finally:
        for plane in planes:
            await plane.stop()


def lead(planes: Sequence[FakeLeader], index: int, term: int) -> None:
    """Let one of them lead; the others refuse and name it."""
    for plane in planes:
        plane.leading = plane is planes[index]
        plane.term = term
        plane.leader_address = planes[index].address


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_the_leader_is_found_among_three_addresses_in_any_order(
    state_dir: Path, order: Sequence[int]
) -> None:
    """Two of them are healthy standbys that refuse; then the others lead, one after the other."""
    async with three(free_port()) as planes:
        addresses = [planes[i].address for i in (0, 1, 2)]
        async with running(make_agent(state_dir, *addresses)):
            for term, index in enumerate(order, start=1):
                lead(planes, index, term)
                for plane in planes:
                    if not plane.leading:
                        plane.cut()
                async with asyncio.timeout(5):
                    await planes[index].registered()
                    await until(lambda: sum(plane.streams_open for plane in planes) == 1, "one")
            assert sum(plane.streams_open for plane in planes) == 1


async def test_a_hint_leads_to_an_address_that_no_name_gives(state_dir: Path) -> None:
    async with three(free_port()) as planes:
        lead(planes, 2, term=4)
        async with running(make_agent(state_dir, planes[0].address)):
            await planes[2].registered()


async def test_of_two_that_accept_the_higher_term_wins_and_the_other_is_closed(
    state_dir: Path,
) -> None:
    async with three(free_port()) as planes:
        for term, plane in zip((7, 9, 8), planes, strict=True):
            plane.leading, plane.term = True, term
        (state_dir / "term").write_text('{"version": 1, "term": 7}')
        async with running(make_agent(state_dir, *(plane.address for plane in planes))):
            await planes[1].registered()
            await until(lambda: [p.streams_open for p in planes] == [0, 1, 0], "one stream")
            assert planes[0].registrations == planes[2].registrations == 0


async def test_a_silent_address_delays_nobody(state_dir: Path, leader: FakeLeader) -> None:
    """A stopped control plane still accepts connections, and never says hello."""
    with socket.socket() as hung:
        hung.bind(("127.0.0.1", 0))
        hung.listen()
        address = f"127.0.0.1:{hung.getsockname()[1]}"
        async with (
            running(make_agent(state_dir, address, leader.address)),
            asyncio.timeout(HELLO_TIMEOUT_S - 1),
        ):
            await leader.registered()


async def test_the_name_not_the_address_is_what_tls_verifies(tmp_path: Path) -> None:
    """The certificate is for 127.0.0.9; the leader listens on 127.0.0.1."""
    ca = TestCa(tmp_path)
    server, node = ca.issue("cp", ["127.0.0.9"]), ca.issue("n1")
    authority = ca.path.read_bytes()
    tls = TlsFiles(authority, server.certificate.read_bytes(), server.key.read_bytes())
    leader = FakeLeader(term=5, tls=tls)
    await leader.start()
    dialer = GrpcDialer(
        tls=TlsFiles(authority, node.certificate.read_bytes(), node.key.read_bytes())
    )
    stream = dialer.open(leader.address, "127.0.0.9")
    assert (await stream.hello()).term == 5
    await stream.close()
    stream = dialer.open(leader.address, "127.0.0.1")
    with pytest.raises(RefusedError):
        await stream.hello()
    await stream.close()
    await leader.stop()


async def test_localhost_is_resolved_and_an_unknown_name_is_none() -> None:
    found = await resolve(ControlName("localhost", 8443, "localhost"))
    assert found is not None
    assert "127.0.0.1:8443" in {target.address for target in found}
    assert {target.server_name for target in found} == {"localhost"}
    assert await resolve(ControlName("no-such-name.invalid", 1, "x")) is None


async def test_the_last_good_addresses_serve_when_names_fail(leader: FakeLeader) -> None:
    answers = [[Target(leader.address, "cp")]]

    async def resolver(_: ControlName) -> Sequence[Target] | None:
        return answers.pop() if answers else None

    name = ControlName("cp", 1, "cp")
    search = Search([name], GrpcDialer(tls=None), random.SystemRandom(), resolver=resolver)
    for _ in range(2):
        found = await search.find(highest_term=0)
        assert found.hello.term == 5
        await found.stream.close()


async def test_the_term_is_on_disk_when_register_arrives(
    state_dir: Path, leader: FakeLeader
) -> None:
    term = state_dir / "term"
    on_disk: list[object] = []
    leader.on_register = lambda _: on_disk.append(
        json.loads(term.read_text()) if term.exists() else None
    )
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
    assert on_disk == [{"version": 1, "term": 5}]


async def test_no_register_is_sent_while_the_term_cannot_be_made_durable(
    state_dir: Path, leader: FakeLeader
) -> None:
    obstacle = state_dir / "term.tmp"
    obstacle.mkdir()
    async with running(make_agent(state_dir, leader.address)):
        await until(lambda: leader.dials >= 3, "three dials")
        assert leader.heard == []
        obstacle.rmdir()
        await leader.registered()


async def test_stopping_while_the_session_fails_stops(state_dir: Path) -> None:
    """Both at once: the failure of the stream must not swallow the order to stop."""
    for _ in range(10):
        leader = FakeLeader(term=5)
        await leader.start()
        stop = asyncio.Event()
        agent = asyncio.create_task(make_agent(state_dir, leader.address).run(stop))
        await leader.registered()
        await leader.stop()
        stop.set()
        async with asyncio.timeout(5):
            await agent


async def test_a_command_of_a_lower_term_is_refused_and_the_highest_is_named(
    state_dir: Path, leader: FakeLeader
) -> None:
    journal = state_dir / "journal"
    async with running(make_agent(state_dir, leader.address, journal=journal)):
        await leader.registered()
        command = StartShard(paced_spec(free_port()), "old")
        result = await leader.send(command, term=4)
        assert (result.accepted, result.stale_term, result.highest_term) == (False, True, 5)
        assert "5" in result.reason
        assert not list((state_dir / "shards").iterdir())
        # The same one of the present term is taken, and a higher term counts from then on.
        assert (await leader.send(command)).accepted
        assert (await leader.send(StopShard("r1", "r1-0", "new"), term=8)).highest_term == 8
        assert json.loads((state_dir / "term").read_text())["term"] == 8
        assert (await leader.send(command, term=5)).stale_term
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    commands = [
        (e["term"], e["accepted"], e["highest_term"]) for e in events if e["event"] == "command"
    ]
    assert commands == [(4, False, 5), (5, True, 5), (8, True, 8), (5, False, 8)]
    assert [e["term"] for e in events if e["event"] == "term"] == [5, 8]


async def test_a_leader_below_the_accepted_term_hears_of_it_and_is_left_if_it_stays(
    state_dir: Path, leader: FakeLeader
) -> None:
    """Its heartbeats are no life; after a restored backup it must raise its term."""
    (state_dir / "term").write_text('{"version": 1, "term": 9}')
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        assert {up.term for up in leader.heard} == {9}
        result = await leader.send(StopShard("r1", "r1-0", "old"))
        assert (result.accepted, result.stale_term, result.highest_term) == (False, True, 9)
    assert json.loads((state_dir / "term").read_text())["term"] == 9


async def test_a_leader_that_stops_beating_is_left_within_three_periods(
    state_dir: Path, leader: FakeLeader
) -> None:
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        await leader.wait_for(lambda up: up if not isinstance(up.body, CommandResult) else None)
        loop = asyncio.get_running_loop()
        leader.beating = False
        silent_since = loop.time()
        await leader.registered(2)
        assert 2 * 0.2 < loop.time() - silent_since < 3 * 0.2 + 1.0


async def test_a_tick_that_stands_still_is_silence(state_dir: Path, leader: FakeLeader) -> None:
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        leader.beating = False
        async with asyncio.timeout(3):
            while leader.registrations < 2:
                with contextlib.suppress(Exception):
                    await leader.post(LeaderHeartbeat(loop_tick=1_000_000))
                await asyncio.sleep(0.05)


async def test_a_frozen_leader_is_alive(state_dir: Path, leader: FakeLeader) -> None:
    async with running(make_agent(state_dir, leader.address)):
        await leader.registered()
        leader.frozen = True
        beats = len(leader.heard)
        await leader.until(lambda: len(leader.heard) > beats + 8)
        assert leader.registrations == 1


STOPPABLE = """
import asyncio, sys
from tests.support.certs import TestCa
from tests.support.fake_leader import FakeLeader
async def main():
    leader = FakeLeader(term=int(sys.argv[2]))
    await leader.start(port=int(sys.argv[1]))
    print("up", flush=True)
    await leader.registered()
    print("registered", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_a_stopped_leader_process_is_noticed_within_three_heartbeats(
    state_dir: Path,
) -> None:
    """SIGSTOP: connections stay open and are acknowledged by the kernel, nothing more comes."""
    port = free_port()
    first = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STOPPABLE, str(port), "5"), stdout=asyncio.subprocess.PIPE
    )
    assert first.stdout is not None
    assert await first.stdout.readline() == b"up\n"
    standby = FakeLeader(leading=False)
    await standby.start()
    async with running(make_agent(state_dir, f"127.0.0.1:{port}", standby.address)):
        assert await first.stdout.readline() == b"registered\n"
        loop = asyncio.get_running_loop()
        os.kill(first.pid, signal.SIGSTOP)
        stopped_at = loop.time()
        dials = standby.dials
        await until(lambda: standby.dials > dials, "the agent looking elsewhere")
        assert loop.time() - stopped_at < 3 * 0.2 + 1.5
        standby.leading, standby.term = True, 6
        await standby.registered()
    first.kill()
    await first.wait()
    await standby.stop()
