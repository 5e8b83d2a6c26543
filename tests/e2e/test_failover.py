"""The leader dies, again and again, under eight open streams; nobody at the client notices.

Seven streams run on a paced engine, so that every token can be counted; one on a real model that
is told to ignore its end. SPEC 0: no failure of the management side stops a token stream.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from ha.clock import BootClock
from ha.etcd import EtcdStore
from ha.store import CompactedError
from llmgw.wire.keys import Keys
from tests.support.system import Stream, System, chat, paced_model, smollm2_model, until, up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LEASE_TTL_S = 5.0
REATTACH_S = LEASE_TTL_S + 2.0
HANDOVER_S = 1.0
KILLS = 5
TOKENS = 900
TOKEN_INTERVAL_S = 0.05
# The longest pause a reader may see between two tokens of a stream that nothing interrupts, on two
# cores that also restart processes.
GAP_MAX_S = 3.0


# These bound times, so nothing runs beside them; they share one system.
pytestmark = [pytest.mark.alone, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    models = [
        paced_model("paced", args=("--token-interval-s", str(TOKEN_INTERVAL_S))),
        smollm2_model("--ctx-size", "16384", "--parallel", "1", "--threads", "1"),
    ]
    async with up(tmp_path_factory.mktemp("failover"), models) as system:
        await system.settled(replicas=2)
        yield system


@pytest_asyncio.fixture(loop_scope="module")
async def streams(system: System) -> AsyncIterator[list[Stream]]:
    """Seven counted streams and one of a real model, all with tokens flowing."""
    opened = [Stream() for _ in range(8)]
    for stream in opened[:7]:
        stream.open(system.router, chat("paced", max_tokens=TOKENS))
    opened[7].open(system.router, chat("smollm2", max_tokens=12_000, ignore_eos=True))

    async def flowing() -> bool:
        return all(len(stream.texts) > 3 for stream in opened)

    await until("tokens flow on all streams", flowing, 30)
    yield opened
    for stream in opened:
        await stream.close()


def engines_of(status: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Identity of every engine: replica to pid and start time."""
    return {
        replica["replica_id"]: (replica["pid"], replica["process_start_ticks"])
        for replica in status["replicas"]
    }


async def whole(system: System) -> bool:
    """Whether every control plane is there, so that any of them may take over."""
    return len((await system.status())["control_planes"]) == len(system.ready["control_planes"])


async def attached_under_a_new_term(system: System, old_term: int) -> dict[str, Any] | None:
    """The status, once another term leads with every agent attached and every replica known."""
    status = await system.status()
    leader, agents = status.get("leader"), status.get("agents")
    if not leader or leader["term"] <= old_term or agents is None:
        return None
    attached = [agent for agent in agents if agent["connected"] and agent["state"] == "ready"]
    ready = [replica for replica in status["replicas"] if replica["state"] == "ready"]
    return status if len(attached) == len(system.ready["agents"]) and len(ready) == 2 else None


def assert_one_leader(status: dict[str, Any]) -> None:
    leading = [plane for plane in status["control_planes"] if plane["role"] == "leading"]
    assert len(leading) == 1, leading


def assert_unbroken(streams: list[Stream]) -> None:
    """No stream broke, and of the counted ones no token is missing or doubled so far."""
    for stream in streams:
        assert stream.error == ""
        assert stream.longest_gap_s() < GAP_MAX_S
    for stream in streams[:7]:
        text = "".join(stream.texts).split()
        assert text == [f"t{number}" for number in range(len(text))]


async def test_five_leaders_are_killed_under_eight_streams(
    system: System, streams: list[Stream]
) -> None:
    engines = engines_of(await system.status())
    terms = [(await system.leader())["term"]]
    loop = asyncio.get_running_loop()
    for _ in range(KILLS):
        leader = await system.leader()
        for pid in (leader["warden_pid"], leader["pid"]):
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        killed_s = loop.time()
        status = await until(
            "all agents attached to a new leader",
            lambda: attached_under_a_new_term(system, terms[-1]),
            REATTACH_S,
        )
        assert loop.time() - killed_s <= REATTACH_S
        assert_one_leader(status)
        assert engines_of(status) == engines
        assert all(stream.is_open for stream in streams)
        terms.append(status["leader"]["term"])
    assert terms == sorted(set(terms))
    await asyncio.gather(*(stream.finished() for stream in streams[:7]))
    assert_unbroken(streams)
    assert all(stream.done and len(stream.texts) == TOKENS for stream in streams[:7])
    assert engines_of(await system.status()) == engines
    assert_terms_only_rise(system)


async def test_a_leader_told_to_stop_hands_over_within_a_second(
    system: System, streams: list[Stream]
) -> None:
    engines = engines_of(await system.status())
    loop = asyncio.get_running_loop()
    terms = [(await system.leader())["term"]]
    for _ in range(KILLS):
        await until("every control plane is back", lambda: whole(system), 20)
        leader = await system.leader()
        os.kill(leader["pid"], signal.SIGTERM)
        told_s = loop.time()
        status = await until(
            "another leader with all agents",
            lambda: attached_under_a_new_term(system, terms[-1]),
            REATTACH_S,
            every_s=0.02,
        )
        assert loop.time() - told_s <= HANDOVER_S
        assert engines_of(status) == engines
        terms.append(status["leader"]["term"])
    assert_unbroken(streams)
    assert all(stream.is_open for stream in streams)
    assert_terms_only_rise(system)


def assert_terms_only_rise(system: System) -> None:
    """What the agents recorded: terms rise, and no command of a lower one was taken."""
    for agent in system.ready["agents"]:
        highest = 0
        for record in system.journal(agent["node_id"]):
            if record["event"] == "term":
                assert record["term"] >= highest
                highest = record["term"]
            elif record["event"] == "command" and record["accepted"]:
                assert record["term"] == highest


async def history(system: System, from_revision: int) -> list[tuple[int, str, bytes | None]]:
    """Every change of the cluster's keys since a revision, as etcd tells it."""
    store = EtcdStore(system.ready["etcd"]["endpoints"])
    changes: list[tuple[int, str, bytes | None]] = []
    try:
        end = (await store.list(Keys().root, timeout_s=5)).revision
        async with asyncio.timeout(10):
            async for batch in store.watch(Keys().root, from_revision):
                changes += [(c.mod_revision, c.key, c.value) for c in batch.changes]
                if batch.resume_revision > end:
                    break
    except CompactedError as error:
        raise AssertionError("the history is gone") from error
    finally:
        await store.close()
    return changes


async def test_a_leader_that_was_stopped_for_three_leases_lands_nothing_when_it_wakes(
    system: System,
) -> None:
    """A01: not one write and not one command after the successor's first."""
    old = await system.leader()
    store = EtcdStore(system.ready["etcd"]["endpoints"])
    revision = (await store.list(Keys().root, timeout_s=5)).revision
    await store.close()
    os.kill(old["pid"], signal.SIGSTOP)
    clock = BootClock()
    stopped_s = clock.now_s()
    try:
        status = await until(
            "a successor with all agents",
            lambda: attached_under_a_new_term(system, old["term"]),
            REATTACH_S + 3,
        )
        # Something to disagree about: the sleeper still believes in the catalog it knew.
        code, _, errors = await system.ctl("delete", "paced")
        assert code == 0, errors
        await system.settled(replicas=1, timeout_s=20)
        await asyncio.sleep(max(0.0, stopped_s + 3 * LEASE_TTL_S - clock.now_s()))
    finally:
        os.kill(old["pid"], signal.SIGCONT)
    woke_s = clock.now_s()
    admin = old["admin"]

    async def stands_by() -> bool:
        return bool((await system.get(f"{admin}/v1/status"))["role"] == "standby")

    await until("the old leader says that it stands by", stands_by, LEASE_TTL_S)
    await asyncio.sleep(2 * LEASE_TTL_S / 6)
    leader = await system.leader()
    assert leader["term"] == status["leader"]["term"]
    sent = [
        record
        for record in system.journal(old["id"])
        if record["boot_s"] >= woke_s and record["event"] in {"send", "write"}
    ]
    # A frozen leader says that it is frozen, and nothing else.
    assert [record for record in sent if record.get("kind") != "heartbeat"] == []
    assert_terms_only_rise(system)
    assert_written_by_the_successor_only(system, await history(system, revision + 1), old)


def assert_written_by_the_successor_only(
    system: System, changes: list[tuple[int, str, bytes | None]], old: dict[str, Any]
) -> None:
    """Every fenced write after the take-over stands in the successor's own journal."""
    took_over = next(
        revision
        for revision, key, value in changes
        if key == Keys().leader and value is not None and old["id"].encode() not in value
    )
    successor = [plane["id"] for plane in system.ready["control_planes"] if plane != old]
    known = {
        record["revision"]
        for name in successor
        for record in system.journal(name)
        if record["event"] == "write"
    }
    leases = (Keys().leader, Keys().term, Keys().candidates)
    for revision, key, _ in changes:
        if revision > took_over and not key.startswith(leases):
            assert revision in known, (revision, key)
