"""Real etcd clusters; every test here is marked `real_etcd`.

A cluster of three is shared by a module's tests, and healed after each of them.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ha.etcd import EtcdStore
from tests.support.etcd import Cluster, Member, running_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

_HERE = Path(__file__).parent
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.real_etcd)


@pytest.fixture
def prefix() -> str:
    """A prefix nobody else uses."""
    return f"/real/{next(_numbers)}/"


@pytest.fixture(scope="module")
def shared_trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("trio"), 3) as cluster:
        yield cluster


@pytest.fixture
def trio(shared_trio: Cluster) -> Iterator[Cluster]:
    """Three members, all well at the start of the test."""
    yield shared_trio
    for member in shared_trio.members:
        member.thaw()
        if member.process is not None and member.process.poll() is not None:
            member.start()
    shared_trio.wait_ready()


@pytest.fixture(scope="module")
def solo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("solo")) as cluster:
        yield cluster


@pytest.fixture
async def open_store() -> AsyncIterator[Callable[..., EtcdStore]]:
    """Stores that are closed after the test; the first member given is tried first."""
    stores: list[EtcdStore] = []

    def opener(*members: Member, **options: str) -> EtcdStore:
        store = EtcdStore([member.endpoint for member in members], **options)  # type: ignore[arg-type]  # user and password only
        order = [member.endpoint for member in members]
        store._calls.endpoints.sort(key=lambda endpoint: order.index(endpoint.address))
        stores.append(store)
        return store

    yield opener
    for store in stores:
        await store.close()
