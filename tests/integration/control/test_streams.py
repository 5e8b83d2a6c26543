"""Agent streams over real gRPC: who is let in, in which order things are said, who is replaced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ha.clock import BootClock
from ha.memory import MemoryStore
from llmgw.domain.messages import (
    Ack,
    AgentHeartbeat,
    CommandResult,
    Provision,
    Register,
    ShardStatus,
    StartShard,
    Up,
)
from llmgw.domain.shard import ShardState
from llmgw.wire.link import GrpcDialer, RefusalKind, RefusedError
from tests.support.certs import SERVER, Authority
from tests.support.control import WAIT_S, Agent, agents, running_plane
from tests.support.fleet import facts, model, report, spec
from tests.support.virtual import until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(BootClock())


async def refusal_of(address: str, *first: Up) -> RefusedError:
    """What a stream is told that says `first` (or nothing) and then listens."""
    stream = GrpcDialer(tls=None).open(address, "localhost")

    async def talk() -> None:
        await stream.hello()
        for up in first:
            await stream.send(up)
        while await stream.receive() is not None:
            pass

    try:
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(RefusedError) as caught:
                await talk()
        return caught.value
    finally:
        await stream.close()


async def test_a_standby_refuses_before_it_reads_and_names_the_leader(
    store: MemoryStore, tmp_path: Path
) -> None:
    async with running_plane(store, tmp_path, "cp1") as first:
        await first.leads()
        async with running_plane(store, tmp_path, "cp2") as second:
            await until(lambda: second.plane.elector.leader is not None, within_s=WAIT_S)
            refused = await refusal_of(second.agents)
            assert refused.kind is RefusalKind.UNAVAILABLE
            assert refused.leader_address == first.agents
            assert refused.term == first.plane.elector.term
            assert "cp1" in refused.reason


async def test_without_a_leader_it_is_said_so(store: MemoryStore, tmp_path: Path) -> None:
    async with running_plane(store, tmp_path, "cp1") as running:
        await running.leads()
        await running.plane.leader.resign("test")
        refused = await refusal_of(running.agents)
        assert (refused.kind, refused.leader_address) == (RefusalKind.UNAVAILABLE, "")


@pytest.mark.parametrize(
    "first", [Up(0, AgentHeartbeat(1)), Up(0, Register("", facts()))], ids=["heartbeat", "no id"]
)
async def test_the_first_message_must_be_register_with_a_node_id(
    store: MemoryStore, tmp_path: Path, first: Up
) -> None:
    async with running_plane(store, tmp_path) as running:
        await running.leads()
        refused = await refusal_of(running.agents, first)
        assert refused.kind is RefusalKind.INVALID_ARGUMENT
        assert "Register with a node id" in refused.reason


async def test_order_of_a_registration_and_the_roster(store: MemoryStore, tmp_path: Path) -> None:
    agent = Agent()
    async with running_plane(store, tmp_path) as running, agents(agent):
        await running.leads()
        hello = await agent.attach(running.agents)
        assert (hello.leader_id, hello.term) == ("cp1", 1)
        await agent.waits_for(lambda: len(agent.received) >= 2)
        assert [type(down.body) for down in agent.received[:2]] == [Ack, Provision]
        assert {down.term for down in agent.received} == {1}
        roster = await store.get("/llmgw/test/roster/node-a", timeout_s=1)
        assert roster is not None
        assert b'"mode": "active"' in roster.value


async def test_a_second_stream_replaces_the_first_whose_words_count_no_more(
    store: MemoryStore, tmp_path: Path
) -> None:
    old, new = Agent(), Agent()
    shard = report(spec(model()))
    async with running_plane(store, tmp_path) as running, agents(old, new):
        await running.leads()
        await old.attach(running.agents)
        await old.waits_for(lambda: old.received)
        new.shards = {"r-1-0": shard}
        await new.attach(running.agents)
        await old.waits_for(old.detached.is_set)
        assert old.refused is not None
        assert "replaced" in old.refused.reason
        term = running.plane.leader.term
        assert term is not None
        await until(lambda: term.fleet.nodes["node-a"].open, within_s=WAIT_S)
        assert term.fleet.nodes["node-a"].connected
        assert len(term.sessions.connected) == 1
        # The first one's end must not make the node look away.
        await asyncio.sleep(0)
        assert term.fleet.shards["node-a", "r-1-0"].state is ShardState.READY


async def test_a_node_may_not_report_on_anothers_shard(store: MemoryStore, tmp_path: Path) -> None:
    one, two = Agent("node-a", obey=False), Agent("node-b", obey=False)
    shard = spec(model())
    one.shards = {"r-1-0": report(shard)}
    async with running_plane(store, tmp_path) as running, agents(one, two):
        await running.leads()
        await one.attach(running.agents)
        await two.attach(running.agents)
        await two.say(ShardStatus(report(shard, ShardState.FAILED)))
        await two.say(ShardStatus(report(spec(model(), "r-2"))))
        term = running.plane.leader.term
        assert term is not None
        await until(lambda: ("node-b", "r-2-0") in term.fleet.shards, within_s=WAIT_S)
        assert ("node-b", "r-1-0") not in term.fleet.shards
        assert term.fleet.shards["node-a", "r-1-0"].state is not ShardState.FAILED


async def test_a_register_that_names_another_node_ends_the_stream(
    store: MemoryStore, tmp_path: Path
) -> None:
    agent = Agent("node-a")
    async with running_plane(store, tmp_path) as running, agents(agent):
        await running.leads()
        await agent.attach(running.agents)
        await agent.register("node-b")
        await agent.waits_for(agent.detached.is_set)
        assert agent.refused is not None
        assert agent.refused.kind is RefusalKind.PERMISSION_DENIED


async def test_a_silent_agents_stream_is_closed_after_three_periods(
    store: MemoryStore, tmp_path: Path
) -> None:
    silent, speaking = Agent("node-a"), Agent("node-b")
    async with (
        running_plane(store, tmp_path, heartbeat_interval_s=0.5) as running,
        agents(silent, speaking),
    ):
        await running.leads()
        await silent.attach(running.agents, heartbeat_s=600.0)
        await speaking.attach(running.agents)
        await silent.waits_for(silent.detached.is_set)
        assert silent.refused is not None
        assert "nothing heard from node-a" in silent.refused.reason
        assert not speaking.detached.is_set()
        term = running.plane.leader.term
        assert term is not None
        assert term.fleet.nodes["node-a"].state == "ready"


async def test_a_heartbeat_whose_tick_stands_still_is_no_sign_of_life(
    store: MemoryStore, tmp_path: Path
) -> None:
    agent = Agent("node-a")

    async def hang() -> None:
        while not agent.detached.is_set():
            await agent.say(AgentHeartbeat(7))
            await asyncio.sleep(0.05)

    async with running_plane(store, tmp_path, heartbeat_interval_s=0.5) as running, agents(agent):
        await running.leads()
        await agent.attach(running.agents, heartbeat_s=600.0)
        hanging = asyncio.create_task(hang())
        await agent.waits_for(agent.detached.is_set)
        await asyncio.gather(hanging, return_exceptions=True)


@pytest.mark.parametrize("by", ["register", "result"])
async def test_an_agent_that_knows_a_higher_term_lifts_the_leaders(
    store: MemoryStore, tmp_path: Path, by: str
) -> None:
    agent, other = Agent("node-a"), Agent("node-b")
    async with running_plane(store, tmp_path) as running, agents(agent, other):
        await running.leads()
        await other.attach(running.agents)
        await other.waits_for(lambda: other.received)
        if by == "register":
            agent.term = 50
            await agent.attach(running.agents)
        else:
            await agent.attach(running.agents)
            stale = CommandResult("x", accepted=False, stale_term=True, highest_term=50)
            await agent.say(stale)
        await agent.waits_for(agent.detached.is_set)
        await other.waits_for(other.detached.is_set)
        assert other.refused is not None
        assert (other.refused.term, other.refused.leader_address) == (51, running.agents)
        assert running.plane.leader.term is not None
        again = Agent("node-a")
        again.term = 50
        async with agents(again):
            assert (await again.attach(running.agents)).term == 51
            await again.waits_for(lambda: len(again.received) >= 2)


class TestIdentity:
    """With TLS the verified certificate's common name says who the node is, and nothing else."""

    @pytest.mark.parametrize(
        ("certificate", "may_be_a"),
        [
            ({"common_name": "node-a"}, True),
            ({"common_name": "node-a", "dns": ["node-b"]}, True),
            ({"common_name": "node-a", "addresses": ["10.0.0.1"]}, True),
            ({"common_name": None, "dns": ["node-a"]}, False),
        ],
        ids=["no SAN", "SAN of another", "SAN is an address", "SAN only"],
    )
    async def test_common_name_decides(
        self,
        store: MemoryStore,
        tmp_path: Path,
        certificate: dict[str, object],
        *,
        may_be_a: bool,
    ) -> None:
        authority = Authority.create()
        server = authority.issue("cp1", dns=["localhost"], usage=SERVER)
        client = authority.issue(**certificate)  # type: ignore[arg-type]
        right, wrong = Agent("node-a", tls=client), Agent("node-b", tls=client)
        async with running_plane(store, tmp_path, tls=server) as running, agents(right, wrong):
            await running.leads()
            if not may_be_a:
                with pytest.raises(RefusedError) as caught:
                    await right.attach(running.agents)
                assert caught.value.kind is RefusalKind.UNAUTHENTICATED
                return
            await right.attach(running.agents)
            await right.waits_for(lambda: right.got(Ack))
            await wrong.attach(running.agents)
            await wrong.waits_for(wrong.detached.is_set)
            assert wrong.refused is not None
            assert wrong.refused.kind is RefusalKind.PERMISSION_DENIED
            assert "'node-a'" in wrong.refused.reason
            assert "'node-b'" in wrong.refused.reason
            assert not wrong.received
            assert running.plane.leader.refusals[RefusalKind.PERMISSION_DENIED] == 1

    async def test_on_every_message_not_just_the_first(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        authority = Authority.create()
        server = authority.issue("cp1", dns=["localhost"], usage=SERVER)
        agent = Agent("node-a", tls=authority.issue("node-a"))
        async with running_plane(store, tmp_path, tls=server) as running, agents(agent):
            await running.leads()
            await agent.attach(running.agents)
            await agent.waits_for(lambda: agent.got(Ack))
            await agent.register("node-b")
            await agent.waits_for(agent.detached.is_set)
            assert agent.refused is not None
            assert agent.refused.kind is RefusalKind.PERMISSION_DENIED

    @pytest.mark.parametrize("which", ["other CA", "server use only", "no certificate at all"])
    async def test_what_is_not_a_client_of_ours_is_nobody(
        self, store: MemoryStore, tmp_path: Path, which: str
    ) -> None:
        authority = Authority.create()
        server = authority.issue("cp1", dns=["localhost"], usage=SERVER)
        stranger = Authority.create("another CA").issue("node-a", trust=authority.pem)
        client = {
            "other CA": stranger,
            "server use only": authority.issue("node-a", usage=SERVER),
            "no certificate at all": None,
        }[which]
        agent = Agent("node-a", tls=client)
        async with running_plane(store, tmp_path, tls=server) as running, agents(agent):
            await running.leads()
            with pytest.raises(RefusedError):
                await agent.attach(running.agents)
            assert not agent.received
            assert running.plane.leader.term is not None
            assert not running.plane.leader.term.sessions.connected


async def test_commands_reach_only_an_adopted_node(store: MemoryStore, tmp_path: Path) -> None:
    """What already runs is known before anything is placed: no duplicate is started."""
    agent = Agent()
    wanted = model()
    agent.shards = {"r-1-0": report(spec(wanted))}
    async with running_plane(store, tmp_path) as running:
        await running.leads()
        writer = running.plane.catalog_writer()
        assert writer is not None
        await writer.apply(
            [wanted.model_dump(mode="json")], prune=False, who="", expected_revision=None
        )
        async with agents(agent):
            await agent.attach(running.agents)
            term = running.plane.leader.term
            assert term is not None
            await until(lambda: "r-1" in term.publisher.held, within_s=WAIT_S)
            assert not agent.got(StartShard)
