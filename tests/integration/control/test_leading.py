"""A term from its start to its end: place, publish, hand over, freeze, take over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from ha.clock import BootClock
from ha.memory import MemoryStore
from ha.store import Put, UnavailableError
from llmgw.control.core.expiry import Limits
from llmgw.domain.endpoint import Endpoint
from llmgw.domain.messages import DrainShard, StartShard, StopShard
from llmgw.domain.shard import ShardReport, ShardState
from llmgw.wire.link import RefusedError
from tests.support.control import (
    WAIT_S,
    Agent,
    CuttableStore,
    Running,
    agents,
    running_plane,
)
from tests.support.fleet import model
from tests.support.virtual import until

if TYPE_CHECKING:
    from pathlib import Path

    from llmgw.domain.catalog import Model

ENDPOINTS = "/llmgw/test/endpoints/"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(BootClock())


async def apply(running: Running, *models: Model, prune: bool = False) -> None:
    await running.leads()
    writer = running.plane.catalog_writer()
    assert writer is not None
    raw = [of.model_dump(mode="json") for of in models]
    await writer.apply(raw, prune=prune, who="test", expected_revision=None)


async def published(store: MemoryStore) -> dict[str, Endpoint]:
    listing = await store.list(ENDPOINTS, timeout_s=1)
    found = [Endpoint.model_validate_json(item.value) for item in listing.items]
    return {endpoint.replica_id: endpoint for endpoint in found}


async def endpoint_revisions(store: MemoryStore) -> dict[str, int]:
    listing = await store.list(ENDPOINTS, timeout_s=1)
    return {item.key: item.mod_revision for item in listing.items}


async def publishes(store: MemoryStore, count: int) -> dict[str, Endpoint]:
    async with asyncio.timeout(WAIT_S):
        while len(found := await published(store)) != count:  # noqa: ASYNC110 - a store, polled
            await asyncio.sleep(0.01)
    return found


async def test_a_model_is_placed_published_changed_and_removed(
    store: MemoryStore, tmp_path: Path
) -> None:
    agent = Agent()
    async with running_plane(store, tmp_path) as running, agents(agent):
        await apply(running, model(aliases=["x"]))
        await agent.attach(running.agents)
        (endpoint,) = (await publishes(store, 1)).values()
        assert (endpoint.model, endpoint.node_id, endpoint.aliases) == ("m", "node-a", ("x",))
        before = await store.get(ENDPOINTS + endpoint.replica_id, timeout_s=1)
        assert before is not None

        # An alias and a weight are in force without a new process.
        await apply(running, model(aliases=["y"], weight=4))
        await until(
            lambda: (
                (running.plane.leader.term is not None)
                and running.plane.leader.term.publisher.held[endpoint.replica_id] != endpoint
            ),
            within_s=WAIT_S,
        )
        assert len(agent.got(StartShard)) == 1

        # Removed: withdrawn first, drained after, gone in the end.
        await apply(running, prune=True)
        await publishes(store, 0)
        await agent.waits_for(lambda: agent.got(DrainShard))
        assert not agent.got(StopShard)
        await agent.waits_for(lambda: not agent.shards)
        sends = [record["boot_s"] for record in running.records("send")
                 if record["kind"] == "drain_shard"]  # fmt: skip
        writes = [record["boot_s"] for record in running.records("write")
                  if record["keys"] == [ENDPOINTS + endpoint.replica_id]]  # fmt: skip
        assert max(writes) < min(sends)


async def test_unchanged_endpoints_are_not_rewritten(store: MemoryStore, tmp_path: Path) -> None:
    agent = Agent()
    async with running_plane(store, tmp_path) as running, agents(agent):
        await apply(running, model())
        await agent.attach(running.agents)
        await publishes(store, 1)
        revision = store.revision
        term = running.plane.leader.term
        assert term is not None
        for _ in range(20):
            term.wake()
            await asyncio.sleep(0.02)
        # Passes ran; nothing was written.
        assert store.revision == revision


async def test_a_heartbeat_that_changes_nothing_causes_no_pass(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent()
    async with running_plane(store, tmp_path) as running, agents(agent):
        await apply(running, model())
        await agent.attach(running.agents, heartbeat_s=0.01)
        await publishes(store, 1)
        await asyncio.sleep(0.2)
        term = running.plane.leader.term
        assert term is not None
        passes = 0
        real_pass = term._pass

        async def counted() -> None:
            nonlocal passes
            passes += 1
            await real_pass()

        monkeypatch.setattr(term, "_pass", counted)
        await asyncio.sleep(1.2)
        # About a hundred heartbeats came; a pass each second is due besides.
        assert passes <= 10


async def test_a_changed_spec_starts_the_new_one_before_it_drains_the_old(
    store: MemoryStore, tmp_path: Path
) -> None:
    agent = Agent()
    async with running_plane(store, tmp_path) as running, agents(agent):
        await apply(running, model())
        await agent.attach(running.agents)
        old = await publishes(store, 1)
        await apply(running, model(args=["--changed"]))
        await agent.waits_for(lambda: agent.got(DrainShard))
        new = await publishes(store, 1)
        assert set(new) != set(old)
        assert [type(body) for body in agent.commands] == [StartShard, StartShard, DrainShard]


async def test_an_engine_that_exits_at_once_backs_off_and_says_why(
    store: MemoryStore, tmp_path: Path
) -> None:
    agent = Agent(obey=False)
    async with running_plane(store, tmp_path) as running, agents(agent):
        await apply(running, model())
        await agent.attach(running.agents)
        for started in (1, 2):
            await agent.waits_for(lambda: len(agent.got(StartShard)) == started)  # noqa: B023 - waited for within the turn
            await fail_last(agent)
        view = running.plane.fleet_view()
        assert view is not None
        await until(lambda: "exit 3" in model_view(running)["reason"], within_s=WAIT_S)
        assert model_view(running)["replicas_ready"] == 0
        (replica,) = (running.plane.fleet_view() or {})["replicas"]
        assert (replica["state"], replica["reason"]) == ("failed", "exit 3")
        assert replica["restarts"] == 2
        starts = [r["boot_s"] for r in running.records("send") if r["kind"] == "start_shard"]
        assert starts[1] - starts[0] >= 1.0


async def fail_last(agent: Agent) -> None:
    """The newest shard fails, and its clean-up is confirmed."""
    body = agent.got(StartShard)[-1]
    assert isinstance(body, StartShard)
    agent.shards = {body.spec.shard_id: ShardReport(body.spec, ShardState.STARTING)}
    await agent.report(body.spec.shard_id, ShardState.FAILED, "exit 3")
    stops = len(agent.got(StopShard)) + 1
    await agent.waits_for(lambda: len(agent.got(StopShard)) == stops)
    await agent.report(body.spec.shard_id, ShardState.STOPPED)


def model_view(running: Running) -> dict[str, Any]:
    (view,) = (running.plane.fleet_view() or {})["models"]
    assert isinstance(view, dict)
    return view


@pytest.mark.parametrize("how", ["resigned", "died"])
async def test_a_take_over_adopts_and_starts_nothing(
    store: MemoryStore, tmp_path: Path, how: str
) -> None:
    """Two replicas on two nodes; the next leader hears of them and leaves them alone."""
    one, two = Agent("node-a"), Agent("node-b")
    async with (
        running_plane(store, tmp_path, "cp1") as first,
        agents(one, two),
        running_plane(store, tmp_path, "cp2") as second,
    ):
        await until(
            lambda: (
                first.plane.elector.leader is not None and second.plane.elector.leader is not None
            ),
            within_s=WAIT_S,
        )
        leader, follower = (first, second) if first.plane.elector.is_leader() else (second, first)
        await apply(leader, model(replicas=2))
        await one.attach(leader.agents)
        await two.attach(leader.agents)
        before = await publishes(store, 2)
        term = leader.plane.elector.term
        if how == "resigned":
            await leader.plane.leader.resign("test")
        else:
            await leader.die()
        await follower.leads()
        assert follower.plane.elector.term > term
        if how == "resigned":
            await one.waits_for(one.detached.is_set)
            assert one.refused is not None
            assert one.refused.leader_address == follower.agents
        commands = len(one.commands) + len(two.commands)
        revisions = await endpoint_revisions(store)
        await one.attach(follower.agents)
        await asyncio.sleep(0.5)
        # One node is missing still: nothing is started for it, nothing is withdrawn.
        assert await published(store) == before
        await two.attach(follower.agents)
        new_term = follower.plane.leader.term
        assert new_term is not None
        await until(lambda: new_term.settling.done, within_s=WAIT_S)
        await asyncio.sleep(0.3)
        assert len(one.commands) + len(two.commands) == commands
        assert await endpoint_revisions(store) == revisions
        view = follower.plane.fleet_view()
        assert view is not None
        assert {replica["state"] for replica in view["replicas"]} == {"ready"}


async def test_after_a_gap_without_leaders_nobody_is_expired(
    store: MemoryStore, tmp_path: Path
) -> None:
    """No control plane for longer than both limits; agents return one after the other."""
    limits = Limits(suspect_after_s=4.0, lost_after_s=8.0)
    listed = [Agent(f"node-{number}") for number in range(4)]
    async with running_plane(store, tmp_path, "cp1", limits=limits) as first:
        await apply(first, model(replicas=8))
        async with agents(*listed):
            for agent in listed:
                await agent.attach(first.agents)
            before = await publishes(store, 8)
    commands = [len(agent.commands) for agent in listed]
    async with (
        running_plane(store, tmp_path, "cp2", limits=limits, skew_s=600.0) as second,
        agents(*listed),
    ):
        await second.leads()
        for agent in listed:
            await agent.attach(second.agents)
            states = {view["state"] for view in (second.plane.fleet_view() or {})["agents"]}
            assert states <= {"unknown", "registering", "ready"}
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)
        assert [len(agent.commands) for agent in listed] == commands
        assert await published(store) == before


async def test_a_silent_node_is_told_of_as_it_becomes_suspect_and_lost(
    store: MemoryStore, tmp_path: Path
) -> None:
    """An operator reads in the log why replicas moved."""
    agent = Agent()
    limits = Limits(suspect_after_s=1.0, lost_after_s=4.0)
    async with running_plane(store, tmp_path, limits=limits) as running:
        await running.leads()
        async with agents(agent):
            await agent.attach(running.agents)
        with capture_logs() as logs:
            told = ["node node-a is suspect (was ready)", "node node-a is lost (was suspect)"]
            await until(
                lambda: [log["event"] for log in logs if log["event"] in told] == told,
                within_s=WAIT_S,
            )


async def test_a_frozen_leader_sends_heartbeats_that_say_so_and_nothing_else(
    store: MemoryStore, tmp_path: Path
) -> None:
    link = CuttableStore(store)
    agent = Agent()
    async with running_plane(link, tmp_path, heartbeat_interval_s=0.5) as running, agents(agent):
        await apply(running, model())
        await agent.attach(running.agents)
        await publishes(store, 1)
        (shard_id,) = agent.shards
        link.cut()
        await agent.waits_for(lambda: True in agent.frozen_beats)
        frozen_at = len(agent.received)
        sent, written = len(running.records("send")), len(running.records("write"))
        await agent.report(shard_id, ShardState.FAILED, "broke while frozen")
        await agent.waits_for(lambda: agent.frozen_beats.count(True) >= 4)
        assert all(type(d.body).__name__ == "LeaderHeartbeat" for d in agent.received[frozen_at:])
        assert not agent.got(StopShard)
        assert len(running.records("send")) == sent
        assert len(running.records("write")) == written
        assert len(await published(store)) == 1
        assert running.plane.elector.role == "frozen"
        assert await refused_here(running)


async def refused_here(running: Running) -> bool:
    newcomer = Agent("node-z")
    with pytest.raises(RefusedError, match="frozen"):
        await newcomer.attach(running.agents)
    await newcomer.close()
    return True


async def test_a_thawed_leader_goes_on_in_the_same_term(store: MemoryStore, tmp_path: Path) -> None:
    """A clock that jumps past the deadline freezes at once; the lease still stands, so it thaws."""
    agent = Agent()
    limits = Limits(suspect_after_s=5.0, lost_after_s=10.0)
    async with running_plane(store, tmp_path, limits=limits) as running, agents(agent):
        await apply(running, model())
        await agent.attach(running.agents)
        await publishes(store, 1)
        (shard_id,) = agent.shards
        running.clock.skew_s = 600.0
        assert not running.plane.elector.is_leader()
        await until(running.plane.elector.is_leader, within_s=WAIT_S)
        await agent.report(shard_id, ShardState.FAILED, "broke")
        await agent.waits_for(lambda: agent.got(StopShard))
        assert running.plane.elector.term == 1
        assert not agent.detached.is_set()
        # It had heard nobody for ten minutes: that counts against no node.
        (view,) = (running.plane.fleet_view() or {})["agents"]
        assert view["state"] == "ready"


async def test_what_the_store_holds_in_error_is_put_right(
    store: MemoryStore, tmp_path: Path
) -> None:
    """Endpoints of nobody go, a deleted one comes back: each pass looks at what is."""
    agent = Agent()
    await store.txn([], [Put(f"{ENDPOINTS}junk", b"not json")], timeout_s=1)
    async with running_plane(store, tmp_path) as running, agents(agent):
        await apply(running, model())
        await agent.attach(running.agents)
        await agent.waits_for(lambda: agent.shards)
        found = await publishes(store, 1)
        assert "junk" not in found


async def test_a_leader_that_cannot_start_resigns(store: MemoryStore, tmp_path: Path) -> None:
    link = CuttableStore(store)
    fail_lists = True
    real_list = store.list

    async def list_(prefix: str, *, timeout_s: float) -> object:
        if fail_lists and prefix.endswith("roster/"):
            raise UnavailableError("the roster is unreadable")
        return await real_list(prefix, timeout_s=timeout_s)

    store.list = list_  # type: ignore[method-assign,assignment]
    async with running_plane(link, tmp_path) as running:
        await until(
            lambda: any("cannot start" in r["reason"] for r in running.records("role")),
            within_s=WAIT_S,
        )
        assert running.plane.leader.term is None
        fail_lists = False
        await running.leads()
        assert running.plane.elector.term > 1


@pytest.mark.parametrize(
    "key",
    ["r/1", "r 1", "\udcff", "%", "r-2", ""],
    ids=["slash", "blank", "no text", "percent", "of another", "no name"],
)
async def test_endpoints_that_no_leader_wrote_are_removed(
    store: MemoryStore, tmp_path: Path, key: str
) -> None:
    """Routers read whatever stands under the prefix, so a key written by hand must go."""
    foreign = Endpoint(
        replica_id="r-1", url="http://h:1", model="m", served_model_name="m", engine="command"
    )
    put = Put(ENDPOINTS + key, foreign.model_dump_json().encode())
    await store.txn([], [put], timeout_s=1)
    async with running_plane(store, tmp_path) as running:
        await apply(running, model(replicas=0))
        await publishes(store, 0)
