"""The test cluster of compose/: three real members that survive the loss of one.

Proved with the product's own store client, so this is also where that client meets a real quorum.
Each test leaves the cluster whole. What the cluster leaves behind is checked when it goes.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testcontainers.compose import DockerCompose

from ha.etcd import EtcdStore
from ha.store import Put, UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

pytestmark = pytest.mark.compose

FOLDER = Path(__file__).parents[2] / "compose"
PROJECT = "llmgw-etcd-test"
MEMBERS = ("etcd-1", "etcd-2", "etcd-3")
CALL_S = 1.0
COMMAND_S = 120.0
# An etcd election took 2.6 s at worst where it was measured; two calls may time out besides.
FAULT_LIMIT_S = 8.0
HEAL_LIMIT_S = 30.0


class Cluster:
    """The running cluster: where its members are, and how to break them."""

    def __init__(self, compose: DockerCompose) -> None:
        self._compose = compose

    def endpoint(self, member: str) -> str:
        """Where `member` listens on this machine; asked anew, for a restart may change it."""
        publisher = self._compose.get_container(member).get_publisher(by_port=2379)
        return f"{publisher.URL}:{publisher.PublishedPort}"

    def run(self, *arguments: str) -> str:
        """One `docker compose` verb."""
        return _docker("compose", "--project-directory", str(FOLDER), *arguments)

    def inside(self, member: str, *command: str) -> str:
        """Output of a command inside a member's container."""
        return self.run("exec", "-T", member, *command)

    def leader(self) -> str:
        """The member that leads the quorum just now."""
        for member in MEMBERS:
            report = self.inside(member, "etcdctl", "endpoint", "status", "--write-out=json")
            status = json.loads(report)[0]["Status"]
            if status["leader"] == status["header"]["member_id"]:
                return member
        raise AssertionError("no member says that it leads")

    def break_member(self, verb: str, member: str) -> None:
        """`pause`: silent, its connections stay open. `kill`: gone, connections are refused."""
        self.run(verb, member)

    async def heal(self) -> None:
        """Every member runs, whatever was done to it, and is healthy."""
        paused = _containers("--filter", "status=paused")
        if paused:
            _docker("unpause", *paused)
        # Not `--wait`: that gives up on a member that is unhealthy for having just been paused.
        self.run("up", "--detach", "--no-build")
        async with asyncio.timeout(HEAL_LIMIT_S):
            while True:
                if _health() == ["healthy"] * len(MEMBERS):
                    return
                await asyncio.sleep(0.2)


def _docker(*arguments: str) -> str:
    done = subprocess.run(
        ["docker", *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _containers(*options: str) -> list[str]:
    label = f"label=com.docker.compose.project={PROJECT}"
    return _docker("ps", "--all", "--quiet", "--filter", label, *options).split()


def _health() -> list[str]:
    return _docker("inspect", "--format", "{{.State.Health.Status}}", *_containers()).split()


def _left_behind() -> list[str]:
    label = f"label=com.docker.compose.project={PROJECT}"
    volumes = _docker("volume", "ls", "--quiet", "--filter", label).split()
    networks = _docker("network", "ls", "--quiet", "--filter", label).split()
    return [*_containers(), *volumes, *networks]


def _why_no_docker() -> str:
    """Why these tests cannot run here, or nothing."""
    if shutil.which("docker") is None:
        return "there is no `docker` program on PATH"
    try:
        _docker("info")
        _docker("compose", "version")
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    reason = _why_no_docker()
    if reason:
        pytest.skip(f"NOT PROVED, needs a Docker engine with Compose: {reason}")
    # Whoever ends a run that takes too long gets the containers removed as well.
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COMPOSE_PROJECT_NAME", PROJECT)
        for number in range(1, len(MEMBERS) + 1):
            environment.setenv(f"ETCD_{number}_PORT", "0")  # beside a cluster that is up already
        compose = DockerCompose(FOLDER, wait=True)
        compose.stop()  # what a killed run left
        try:
            compose.start()
            yield Cluster(compose)
        except subprocess.CalledProcessError as error:
            logs = "\n".join(compose.get_logs())
            pytest.fail(f"{error}\n{os.fsdecode(error.stderr)}\n{logs}")
        finally:
            compose.stop()
            signal.signal(signal.SIGTERM, former)
    assert _left_behind() == []


@pytest.fixture
async def breakable(cluster: Cluster) -> AsyncGenerator[Cluster, None]:
    """The cluster for a test that breaks it."""
    yield cluster
    await cluster.heal()


@asynccontextmanager
async def _store(*endpoints: str) -> AsyncGenerator[EtcdStore, None]:
    store = EtcdStore(endpoints)
    try:
        yield store
    finally:
        await store.close()


async def _put(store: EtcdStore, key: str, value: bytes, lease_id: int = 0) -> None:
    result = await store.txn([], [Put(key, value, lease_id)], timeout_s=CALL_S)
    assert result.succeeded


async def _value(store: EtcdStore, key: str) -> bytes | None:
    found = await store.get(key, timeout_s=CALL_S)
    return found.value if found is not None else None


async def _until_written(store: EtcdStore, key: str, value: bytes, limit_s: float) -> None:
    """Write and read back, trying again while the store says that it cannot."""
    async with asyncio.timeout(limit_s):
        while True:
            try:
                await _put(store, key, value)
                assert await _value(store, key) == value
            except UnavailableError:
                await asyncio.sleep(0.05)
            else:
                return


async def _until_gone(store: EtcdStore, key: str) -> None:
    while True:
        if await _value(store, key) is None:
            return
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("member", MEMBERS)
async def test_every_member_answers_for_itself(cluster: Cluster, member: str) -> None:
    async with _store(cluster.endpoint(member)) as store:
        assert (await store.version(timeout_s=CALL_S)).startswith("3.5.")
        await _put(store, f"/answers/{member}", member.encode())
        assert await _value(store, f"/answers/{member}") == member.encode()


async def test_a_write_on_one_member_is_read_on_all(cluster: Cluster) -> None:
    for writer in MEMBERS:
        async with _store(cluster.endpoint(writer)) as store:
            await _put(store, "/shared", writer.encode())
        for reader in MEMBERS:
            async with _store(cluster.endpoint(reader)) as store:
                assert await _value(store, "/shared") == writer.encode()


async def test_the_three_are_one_cluster(cluster: Cluster) -> None:
    seen = set()
    for member in MEMBERS:
        async with _store(cluster.endpoint(member)) as store:
            seen.add((await store.list("/shared/", timeout_s=CALL_S)).cluster_id)
    assert len(seen) == 1
    assert seen != {0}


async def test_a_lease_granted_by_one_member_is_kept_by_another_and_ends(cluster: Cluster) -> None:
    first, second, third = (cluster.endpoint(member) for member in MEMBERS)
    async with _store(first) as granter, _store(second) as keeper, _store(third) as reader:
        lease = await granter.grant(2.0, timeout_s=CALL_S)
        await _put(keeper, "/leased", b"held", lease.lease_id)
        assert await keeper.keep_alive(lease.lease_id, timeout_s=CALL_S) >= lease.ttl_s
        assert await _value(reader, "/leased") == b"held"
        async with asyncio.timeout(lease.ttl_s + 3.0):
            await _until_gone(reader, "/leased")


async def test_revoking_a_lease_deletes_its_keys_at_once(cluster: Cluster) -> None:
    first, second, _ = (cluster.endpoint(member) for member in MEMBERS)
    async with _store(first) as granter, _store(second) as reader:
        lease = await granter.grant(60.0, timeout_s=CALL_S)
        await _put(granter, "/revoked", b"held", lease.lease_id)
        await granter.revoke(lease.lease_id, timeout_s=CALL_S)
        assert await _value(reader, "/revoked") is None


@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("verb", ["pause", "kill"])
async def test_reads_and_writes_go_on_without_one_member(
    breakable: Cluster, verb: str, role: str
) -> None:
    leader = breakable.leader()
    victim = leader if role == "leader" else next(m for m in MEMBERS if m != leader)
    others = [breakable.endpoint(m) for m in MEMBERS if m != victim]
    key, value = "/survives", f"{verb} {role}".encode()
    # The victim comes first: a client that stays with it never gets an answer.
    async with _store(breakable.endpoint(victim), *others) as store:
        await _put(store, key, b"before")
        breakable.break_member(verb, victim)
        await _until_written(store, key, value, FAULT_LIMIT_S)

    await breakable.heal()
    async with _store(breakable.endpoint(victim)) as store:
        assert await _value(store, key) == value, "the victim did not catch up"


def test_a_member_without_a_quorum_is_not_healthy(breakable: Cluster) -> None:
    breakable.inside("etcd-1", "member-healthy")
    breakable.break_member("pause", "etcd-2")
    breakable.break_member("pause", "etcd-3")
    with pytest.raises(RuntimeError, match="deadline exceeded"):
        breakable.inside("etcd-1", "member-healthy")


def test_one_name_resolves_to_all_three(cluster: Cluster) -> None:
    for member in MEMBERS:
        answer = cluster.inside(member, "getent", "ahostsv4", "etcd")
        addresses = {line.split()[0] for line in answer.splitlines()}
        own = {cluster.inside(m, "hostname", "-i").strip() for m in MEMBERS}
        assert addresses == own
        assert len(addresses) == len(MEMBERS)
    cluster.inside("etcd-1", "etcdctl", "--endpoints=etcd:2379", "put", "/by-name", "x")


def test_ports_are_published_on_loopback_only(cluster: Cluster) -> None:
    published = _docker("inspect", "--format", "{{json .NetworkSettings.Ports}}", *_containers())
    bindings = [
        binding["HostIp"]
        for line in published.splitlines()
        for ports in json.loads(line).values()
        for binding in ports or []
    ]
    assert bindings == ["127.0.0.1"] * len(MEMBERS)
    assert cluster.endpoint("etcd-1").startswith("127.0.0.1:")


async def test_data_outlive_the_containers(breakable: Cluster) -> None:
    async with _store(breakable.endpoint("etcd-1")) as store:
        await _put(store, "/kept", b"yes")
    breakable.run("down")
    await breakable.heal()
    async with _store(breakable.endpoint("etcd-2")) as store:
        assert await _value(store, "/kept") == b"yes"
