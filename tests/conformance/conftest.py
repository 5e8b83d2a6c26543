"""Two stores, one suite: what passes here is what the rest of the project may rely on."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ha.clock import BootClock
from ha.etcd import EtcdStore
from ha.memory import MemoryStore
from tests.support.etcd import Cluster, running_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from ha.store import Store

_numbers = itertools.count()


@dataclass
class Subject:
    """A store, a prefix nobody else uses, and the operator's way to compact it."""

    store: Store
    prefix: str
    compact: Callable[[int], None]


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.real_etcd)])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    prefix = f"/conformance/{next(_numbers)}/"
    if request.param == "memory":
        memory = MemoryStore(BootClock())
        yield Subject(memory, prefix, memory.compact)
        return
    cluster: Cluster = request.getfixturevalue("etcd")
    store = EtcdStore(cluster.endpoints)
    yield Subject(store, prefix, cluster.compact)
    await store.close()
