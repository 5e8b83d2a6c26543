"""Where a replica goes, that nothing is booked twice, and that every rejection says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.control.core.backoff import Failures, after_failure, is_forgotten
from llmgw.control.core.bookings import Bookings, PortRange
from llmgw.control.core.events import Disconnected, Ticked
from llmgw.control.core.expiry import Limits
from llmgw.control.core.fleet import Fleet
from llmgw.control.core.placement import NoPlace, Place, Search
from llmgw.control.core.plan import Start, Stop
from llmgw.domain.node import EngineInstallation, Gpu, InstallationState
from llmgw.domain.shard import ShardState
from tests.support.fleet import (
    GIB,
    QUICK,
    attach,
    catalog,
    ids,
    model,
    plan,
    report,
    spec,
    status,
    take,
)

if TYPE_CHECKING:
    from llmgw.domain.catalog import Model


def search(
    fleet: Fleet, wanted: Model, *, now_s: float = 0.0, ports: PortRange | None = None
) -> Place | NoPlace:
    bookings = Bookings(fleet, ports or PortRange())
    return Search(wanted, fleet.nodes, bookings, fleet.failures, now_s).place()


def why_not(fleet: Fleet, wanted: Model) -> str:
    found = search(fleet, wanted)
    assert isinstance(found, NoPlace)
    return found.reason


def node_of(found: Place | NoPlace) -> str:
    assert isinstance(found, Place), found
    return found.node_id


def gpu(uuid: str, *, used_gib: int | None = 0, total_gib: int | None = 24, **more: object) -> Gpu:
    total = None if total_gib is None else total_gib * GIB
    used = None if used_gib is None else used_gib * GIB
    known = {"memory_total_bytes": total, "memory_used_bytes": used}
    return Gpu(0, uuid, "NVIDIA A10", **(known | more))  # type: ignore[arg-type]


class TestCpuNodes:
    """Memory, pool, labels and engines."""

    def test_memory_that_shards_hold_is_not_given_twice(self) -> None:
        fleet = Fleet(0.0)
        big = model(memory_mb=10 * 1024)
        attach(fleet, "node-a", report(spec(big)))
        assert "6144 MiB of memory left, 10240 needed" in why_not(fleet, big)

    def test_unknown_memory_is_neither_zero_nor_infinite(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", memory_total_bytes=None)
        assert "unknown" in why_not(fleet, model(memory_mb=1))
        assert node_of(search(fleet, model())) == "node-a"

    def test_pool_labels_and_engine_are_conditions_that_are_named(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", pool="blue", labels={"zone": "1"})
        assert "in pool 'blue', not 'red'" in why_not(fleet, model(pool="red"))
        assert "zone=2" in why_not(fleet, model(labels={"zone": "2"}))
        assert "engine vllm is not installed" in why_not(fleet, model(engine="vllm"))
        assert "not 9" in why_not(fleet, model(engine_version="9"))
        assert node_of(search(fleet, model(pool="blue", labels={"zone": "1"}))) == "node-a"

    def test_an_engine_that_failed_to_install_says_so(self) -> None:
        fleet = Fleet(0.0)
        broken = EngineInstallation("command", state=InstallationState.FAILED, detail="no wheel")
        attach(fleet, "node-a", engines=(broken,))
        assert "failed: no wheel" in why_not(fleet, model())

    def test_replicas_of_a_model_are_spread(self) -> None:
        fleet = Fleet(0.0)
        wanted = model()
        attach(fleet, "node-a", report(spec(wanted)))
        attach(fleet, "node-b")
        assert node_of(search(fleet, wanted)) == "node-b"

    def test_no_node_at_all_is_said(self) -> None:
        assert why_not(Fleet(0.0), model()) == "no node has registered"

    def test_a_replica_over_several_nodes_is_refused_honestly(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a")
        assert "spans 2 nodes; this version places" in why_not(fleet, model(nodes=2))

    def test_a_long_list_of_nodes_is_cut(self) -> None:
        fleet = Fleet(0.0)
        for number in range(9):
            attach(fleet, f"node-{number}")
        assert why_not(fleet, model(engine="vllm")).endswith("; and 4 more")


class TestNodesThatTakeNothing:
    """Nodes that are not open now."""

    def test_one_that_is_still_registering(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", opened=False)
        assert "still registering" in why_not(fleet, model())

    def test_one_whose_agent_is_away(self) -> None:
        fleet = Fleet(0.0)
        fleet.fold(Disconnected("node-a", attach(fleet, "node-a")), 0.0)
        assert "not connected" in why_not(fleet, model())

    def test_one_that_is_suspect(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a")
        fleet.fold(Ticked(Limits()), 20.0)
        assert "suspect" in why_not(fleet, model())


class TestGpus:
    """GPUs by UUID, class, health and free memory."""

    def test_the_fragments_of_a_node_are_not_summed_up(self) -> None:
        """Four GPUs with 10 GB free each hold no 20 GB; one GPU with 24 GB does."""
        fleet = Fleet(0.0)
        attach(fleet, "node-a", gpus=tuple(gpu(f"GPU-a{i}", used_gib=14) for i in range(4)))
        wanted = model(gpu_class="A10", memory_mb=20 * 1024)
        assert "GPU-a0: 10240 MiB free, 20480 needed" in why_not(fleet, wanted)
        attach(fleet, "node-b", gpus=(gpu("GPU-b"),))
        found = search(fleet, wanted)
        assert isinstance(found, Place)
        assert (found.node_id, found.gpu_uuids) == ("node-b", ("GPU-b",))

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            (gpu("GPU-1", problems=("fell off the bus",)), "fell off the bus"),
            (gpu("GPU-1", total_gib=None), "memory is unknown"),
            (gpu("GPU-1", used_gib=None), "memory is unknown"),
        ],
    )
    def test_one_that_cannot_be_used_says_why(self, bad: Gpu, reason: str) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", gpus=(bad,))
        assert reason in why_not(fleet, model(gpu_class="a10", memory_mb=1))

    def test_another_class_does_not_do(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", gpus=(gpu("GPU-1"),))
        assert "is a NVIDIA A10, not a H100" in why_not(fleet, model(gpu_class="H100"))

    def test_booked_by_uuid(self) -> None:
        fleet = Fleet(0.0)
        wanted = model(gpu_class="A10", gpus_per_node=1)
        held = spec(wanted, gpu_uuids=("GPU-1",))
        attach(fleet, "node-a", report(held), gpus=(gpu("GPU-1"), gpu("GPU-2")))
        found = search(fleet, wanted)
        assert isinstance(found, Place)
        assert found.gpu_uuids == ("GPU-2",)

    def test_a_gpu_profile_on_a_cpu_node(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a")
        assert "has no GPU" in why_not(fleet, model(gpu_class="A10"))

    def test_cpu_work_leaves_gpu_nodes_alone(self) -> None:
        fleet = Fleet(0.0)
        attach(fleet, "node-a", gpus=(gpu("GPU-1"),))
        attach(fleet, "node-b")
        assert node_of(search(fleet, model())) == "node-b"


def test_the_next_profile_only_when_the_better_cannot_fit() -> None:
    fleet = Fleet(0.0)
    attach(fleet, "node-a")
    profiles = [
        {"name": "gpu", "engine": "command", "gpu_class": "A10"},
        {"name": "cpu", "engine": "command"},
    ]
    wanted = model(profiles=profiles)
    found = search(fleet, wanted)
    assert isinstance(found, Place)
    assert (found.profile.name, found.profile_priority) == ("cpu", 1)
    attach(fleet, "node-b", gpus=(gpu("GPU-1"),))
    found = search(fleet, wanted)
    assert isinstance(found, Place)
    assert (found.profile.name, found.profile_priority) == ("gpu", 0)


class TestPorts:
    """Ports are booked with the placement."""

    def test_nodes_that_share_an_address_share_its_ports(self) -> None:
        fleet = Fleet(0.0)
        wanted = model(replicas=2)
        attach(fleet, "node-a", management_address="127.0.0.1")
        attach(fleet, "node-b", management_address="127.0.0.1")
        starts = [step for step in plan(fleet, catalog(wanted)).steps if isinstance(step, Start)]
        assert {start.node_id for start in starts} == {"node-a", "node-b"}
        assert len({start.spec.http_port for start in starts}) == 2

    def test_an_exhausted_range_is_said(self) -> None:
        fleet = Fleet(0.0)
        wanted = model()
        attach(fleet, "node-a", report(spec(wanted, port=20_000)))
        found = search(fleet, wanted, ports=PortRange(20_000, 1))
        assert isinstance(found, NoPlace)
        assert "no port is free" in found.reason

    def test_one_just_given_up_rests(self) -> None:
        fleet = Fleet(0.0)
        in_force = catalog(model())
        attach(fleet, "node-a")
        ports, new_id = PortRange(20_000, 5), ids()
        seen = []
        for round_number in range(5):
            now_s = 1_000.0 * round_number
            planned = plan(fleet, in_force, ports=ports, now_s=now_s, new_id=new_id)
            take(fleet, planned, now_s=now_s)
            start = next(step for step in planned.steps if isinstance(step, Start))
            seen.append(start.spec.http_port)
            status(fleet, "node-a", report(start.spec, ShardState.FAILED), now_s=now_s)
            take(fleet, plan(fleet, in_force, now_s=now_s), now_s=now_s)
            status(fleet, "node-a", report(start.spec, ShardState.STOPPED), now_s=now_s)
        assert seen == [20_000, 20_001, 20_002, 20_003, 20_004]

    def test_after_a_take_over_booking_goes_on_above_the_highest_in_use(self) -> None:
        fleet = Fleet(0.0)
        wanted = model(replicas=2)
        attach(fleet, "node-a", report(spec(wanted, port=20_007)))
        found = search(fleet, wanted)
        assert isinstance(found, Place)
        assert found.http_port == 20_008

    @QUICK
    @given(
        held=st.lists(st.integers(20_000, 20_019), unique=True, max_size=20),
        nodes=st.integers(1, 3),
        shared=st.booleans(),
        replicas=st.integers(0, 30),
    )
    def test_no_port_is_ever_booked_twice(
        self, held: list[int], nodes: int, replicas: int, *, shared: bool
    ) -> None:
        fleet = Fleet(0.0)
        wanted = model("new", replicas=replicas)
        for number in range(nodes):
            address = "127.0.0.1" if shared else f"127.0.0.{number + 1}"
            mine = held[number::nodes]
            reports = [report(spec(model("old"), f"old-{port}", port=port)) for port in mine]
            attach(fleet, f"node-{number}", *reports, management_address=address)
        in_force = catalog(wanted, model("old", replicas=len(held)))
        take(fleet, plan(fleet, in_force, ports=PortRange(20_000, 20)))
        booked = []
        for shard in fleet.shards.values():
            known = fleet.nodes[shard.node_id].facts
            assert known is not None
            booked.append((known.management_address, shard.spec.http_port))
        assert len(booked) == len(set(booked))
        assert all(20_000 <= port < 20_020 for _, port in booked)


class TestAfterFailures:
    """Back-off per model, spec and node."""

    def failed(self, fleet: Fleet, wanted: Model, times: int, *, now_s: float) -> None:
        """The model fails so often on node-a, each time cleaned up."""
        for number in range(times):
            shard = spec(wanted, f"failed-{number}")
            status(fleet, "node-a", report(shard, ShardState.STARTING), now_s=now_s)
            status(fleet, "node-a", report(shard, ShardState.FAILED, reason="exit 3"), now_s=now_s)
            for step in plan(fleet, catalog(wanted), now_s=now_s).steps:
                if isinstance(step, Stop):
                    status(fleet, "node-a", report(shard, ShardState.STOPPED), now_s=now_s)

    def test_waits_longer_after_each_on_the_same_node(self) -> None:
        fleet = Fleet(0.0)
        wanted = model()
        attach(fleet, "node-a")
        attach(fleet, "node-b", report(spec(model("x"), "x")), report(spec(model("y"), "y")))
        self.failed(fleet, wanted, 2, now_s=10.0)
        reason = search(fleet, wanted, now_s=11.5)
        assert isinstance(reason, NoPlace)
        assert "failed 2 times in a row on node-a" in reason.reason
        assert "exit 3" in reason.reason
        assert node_of(search(fleet, wanted, now_s=12.0)) == "node-a"

    def test_three_on_one_node_try_another(self) -> None:
        fleet = Fleet(0.0)
        wanted = model()
        attach(fleet, "node-a")
        attach(fleet, "node-b", report(spec(model("x"), "x")))
        self.failed(fleet, wanted, 3, now_s=10.0)
        assert node_of(search(fleet, wanted, now_s=10.1)) == "node-b"

    def test_nothing_starts_beside_what_is_left_of_a_failed_shard(self) -> None:
        fleet = Fleet(0.0)
        wanted = model()
        attach(fleet, "node-a", report(spec(wanted), ShardState.FAILED))
        found = search(fleet, wanted, now_s=1_000.0)
        assert isinstance(found, NoPlace)
        assert "being cleaned up" in found.reason

    def test_a_changed_spec_starts_afresh(self) -> None:
        fleet = Fleet(0.0)
        wanted = model()
        attach(fleet, "node-a")
        self.failed(fleet, wanted, 3, now_s=10.0)
        assert isinstance(search(fleet, wanted, now_s=10.1), NoPlace)
        assert node_of(search(fleet, model(args=["--fixed"]), now_s=10.1)) == "node-a"


def test_backoff_doubles_up_to_five_minutes_and_forgets_after_stability() -> None:

    known: Failures | None = None
    waits = []
    for _ in range(12):
        known = after_failure(known, reason="x", ready_for_s=1.0, now_s=100.0)
        waits.append(known.retry_at_s - 100.0)
    assert waits[:5] == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert waits[-1] == 300.0
    assert known is not None
    assert after_failure(known, reason="x", ready_for_s=300.0, now_s=0.0).count == 1
    assert not is_forgotten(known, known.retry_at_s + 800.0)
    assert is_forgotten(known, known.retry_at_s + 900.0)
