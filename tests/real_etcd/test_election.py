"""Elections on a real etcd: a leader that slept, hand-over, and an etcd that is not there."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from ha.clock import BootClock
from ha.elector import Elector, Role, Timing, Transition
from ha.store import Put
from tests.real_etcd.candidate import election_keys
from tests.support.virtual import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ha.etcd import EtcdStore
    from ha.store import Change, Store
    from tests.support.etcd import Cluster

T = 5.0
LEASE_TTL_S = 2.0


@contextlib.asynccontextmanager
async def running(
    store: Store,
    prefix: str,
    identity: str,
    *,
    lease_ttl_s: float = LEASE_TTL_S,
    heard: list[Transition] | None = None,
) -> AsyncIterator[Elector]:
    """A candidate in this process."""
    elector = Elector(
        store,
        BootClock(),
        keys=election_keys(prefix),
        identity=identity,
        facts={"address": f"{identity}:1"},
        timing=Timing(lease_ttl_s=lease_ttl_s),
        random=random.Random(1),
        on_transition=([] if heard is None else heard).append,
    )
    task = asyncio.create_task(elector.run())
    try:
        yield elector
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def candidate_process(
    endpoint: str, prefix: str, identity: str, guards: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A candidate in a process of its own."""
    arguments = [endpoint, prefix, identity, str(LEASE_TTL_S), guards]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.real_etcd.candidate",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def line(process: asyncio.subprocess.Process) -> str:
    """The next change of role that a candidate's process reports."""
    assert process.stdout is not None
    async with asyncio.timeout(15):
        return (await process.stdout.readline()).decode()


async def history(store: Store, key: str, start_revision: int) -> list[Change]:
    """Every change of a key up to now."""
    end = (await store.list(key, timeout_s=T)).revision
    changes: list[Change] = []
    async with asyncio.timeout(T), contextlib.aclosing(store.watch(key, start_revision)) as batches:
        async for batch in batches:
            changes += batch.changes
            if batch.changes and batch.changes[-1].mod_revision == end:
                return changes
    raise AssertionError("the watch ended")


@pytest.mark.parametrize(
    ("guards", "slept_ttls"),
    [("deadline+fence", 3.0), ("fence", 0.5), pytest.param("none", 0.5, id="control")],
)
async def test_a_leader_that_slept_changes_nothing_when_it_wakes(
    solo: Cluster,
    open_store: Callable[..., EtcdStore],
    prefix: str,
    *,
    guards: str,
    slept_ttls: float,
) -> None:
    """Case A01. The control shows that a stale write would be seen here."""
    store = open_store(*solo.members)
    start = (await store.list(prefix, timeout_s=T)).revision + 1
    async with candidate_process(solo.endpoints[0], prefix, "sleeper", guards) as sleeper:
        assert (await line(sleeper)).startswith("leading 1")
        await _wait_for_write(store, prefix, b"sleeper")
        async with running(store, prefix, "successor") as successor:
            await until(lambda: successor.leader is not None, within_s=T)
            sleeper.send_signal(signal.SIGSTOP)
            leadership = await asyncio.wait_for(successor.lead(), LEASE_TTL_S + 2)
            assert leadership.term == 2
            await leadership.txn([], [Put(prefix + "writes", b"successor")], timeout_s=T)
            await asyncio.sleep(slept_ttls * LEASE_TTL_S)  # the length of the sleep is the case
            sleeper.send_signal(signal.SIGCONT)
            assert (await line(sleeper)).split()[0] in ("frozen", "standby")
            await _wait_until_it_stands_by(store, prefix)
            await leadership.txn([], [Put(prefix + "writes", b"successor")], timeout_s=T)
            changes = await history(store, prefix + "writes", start)
    writers = [change.value for change in changes]
    first = writers.index(b"successor")
    assert set(writers[:first]) == {b"sleeper"}
    late = writers[first:].count(b"sleeper")
    assert (late > 0) == (guards == "none"), f"{late} writes of the sleeper landed"


async def _wait_for_write(store: Store, prefix: str, writer: bytes) -> None:
    async with asyncio.timeout(T):
        while True:
            found = await store.get(prefix + "writes", timeout_s=T)
            if found is not None and found.value == writer:
                return


async def _wait_until_it_stands_by(store: Store, prefix: str) -> None:
    """The sleeper has a new lease: it knows that the old one is gone."""
    async with asyncio.timeout(T):
        while await store.get(prefix + "candidates/sleeper", timeout_s=T) is None:
            pass


async def test_a_graceful_hand_over_takes_less_than_a_second(
    solo: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    store = open_store(*solo.members)
    async with running(store, prefix, "a") as a:
        first = await asyncio.wait_for(a.lead(), T)
        async with running(store, prefix, "b", lease_ttl_s=5) as b:
            await until(lambda: b.leader is not None and b._core.lease_id != 0, within_s=T)
            await a.resign("maintenance")
            second = await asyncio.wait_for(b.lead(), 1)
            assert second.term == first.term + 1
            assert first.ended.is_set()
            await until(lambda: a.leader is not None and a.leader.id == "b", within_s=T)
            candidates = await store.list(prefix + "candidates/", timeout_s=T)
            assert [item.key.rpartition("/")[2] for item in candidates.items] == ["b"]


async def test_an_etcd_that_is_down_at_the_start_is_waited_for(
    solo: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    [member] = solo.members
    member.kill()
    async with running(open_store(member), prefix, "patient") as elector:
        await until(lambda: elector.problem != "", within_s=5)
        assert elector.role is Role.STANDBY
        member.start()
        await asyncio.wait_for(elector.lead(), 20)
        await until(lambda: elector.problem == "", within_s=5)
    solo.wait_ready()


async def test_an_election_within_etcd_costs_no_term(
    trio: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    heard: list[Transition] = []
    leader = trio.leader()
    others = [member for member in trio.members if member is not leader]
    store = open_store(leader, *others)
    async with running(store, prefix, "steady", lease_ttl_s=5, heard=heard) as elector:
        leadership = await asyncio.wait_for(elector.lead(), T)
        leader.kill()
        wrote = False
        async with asyncio.timeout(10):
            while not wrote:
                with contextlib.suppress(Exception):
                    await leadership.txn([], [Put(prefix + "k", b"v")], timeout_s=1)
                    wrote = True
        assert (await asyncio.wait_for(elector.lead(), T)) is leadership
        assert {change.term for change in heard} == {leadership.term}
        assert not leadership.ended.is_set()


async def test_a_frozen_leader_resumes_its_term_when_etcd_is_back(
    solo: Cluster, open_store: Callable[..., EtcdStore], prefix: str
) -> None:
    [member] = solo.members
    heard: list[Transition] = []
    async with running(open_store(member), prefix, "patient", heard=heard) as elector:
        leadership = await asyncio.wait_for(elector.lead(), T)
        member.kill()  # its leases have their full TTL again when it is back
        await until(lambda: elector.role is Role.FROZEN, within_s=LEASE_TTL_S + 1)
        assert leadership.frozen
        member.start()
        assert await asyncio.wait_for(elector.lead(), 10) is leadership
        assert (await leadership.txn([], [Put(prefix + "k", b"v")], timeout_s=T)).succeeded
        assert [change.new for change in heard] == [Role.LEADING, Role.FROZEN, Role.LEADING]
    solo.wait_ready()


@pytest.mark.parametrize("lost", ["leader", "lease"])
async def test_a_leader_learns_that_its_key_or_lease_is_gone(
    solo: Cluster, open_store: Callable[..., EtcdStore], prefix: str, lost: str
) -> None:
    store = open_store(*solo.members)
    async with running(store, prefix, "victim") as elector:
        leadership = await asyncio.wait_for(elector.lead(), T)
        if lost == "leader":
            solo.delete(election_keys(prefix).leader)
        else:
            await store.revoke(elector._core.lease_id, timeout_s=T)
        await asyncio.wait_for(leadership.ended.wait(), T)
        again = await asyncio.wait_for(elector.lead(), 10)
        assert again.term == leadership.term + 1
