"""TLS with client certificates, and user/password with tokens that run out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from ha.etcd import EtcdStore, EtcdTls
from ha.store import Put, RejectedError, UnavailableError
from tests.support.certs import Pair, TestCa
from tests.support.etcd import Cluster, Tls, running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = 5.0
TOKEN_TTL_S = 1


def etcd_tls(ca: Path, pair: Pair) -> EtcdTls:
    return EtcdTls(ca.read_bytes(), pair.certificate.read_bytes(), pair.key.read_bytes())


async def test_only_a_client_with_a_certificate_of_the_right_authority_is_served(
    tmp_path: Path,
) -> None:
    ca = TestCa(tmp_path)
    server, client = ca.issue("etcd", ["127.0.0.1"]), ca.issue("control-1")
    other = TestCa(tmp_path, "other-ca")
    stranger = other.issue("stranger")
    with running_cluster(tmp_path / "etcd", tls=Tls(ca.path, server, client)) as cluster:
        endpoint = f"https://{cluster.endpoints[0]}"
        for authority, pair, served in (
            (ca.path, client, True),
            (ca.path, stranger, False),
            (other.path, client, False),
        ):
            store = EtcdStore([endpoint], tls=etcd_tls(authority, pair))
            if served:
                assert (await store.txn([], [Put("/k", b"v")], timeout_s=T)).succeeded
            else:
                with pytest.raises(UnavailableError):
                    await store.get("/k", timeout_s=0.7)
            await store.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An etcd that knows root, and a reader who may see /open/ only."""
    arguments = [f"--auth-token-ttl={TOKEN_TTL_S}"]
    with running_cluster(tmp_path_factory.mktemp("auth"), extra_arguments=arguments) as cluster:
        [member] = cluster.members
        for name in ("root", "reader"):
            member.api("auth/role/add", {"name": name})
            member.api("auth/user/add", {"name": name, "password": f"{name}-password"})
            member.api("auth/user/grant", {"user": name, "role": name})
        permission = {"permType": "READ", "key": "L29wZW4v", "range_end": "L29wZW4w"}  # /open/
        member.api("auth/role/grant", {"name": "reader", "perm": permission})
        member.api("auth/enable", {})
        yield cluster


async def test_an_expired_token_is_renewed_for_calls_and_watches(
    guarded: Cluster, open_store: Callable[..., EtcdStore]
) -> None:
    store = open_store(*guarded.members, user="root", password="root-password")  # noqa: S106 - a test's
    await store.txn([], [Put("/open/a", b"1")], timeout_s=T)
    first = store._calls._token
    revision = (await store.list("/open/", timeout_s=T)).revision
    async with asyncio.timeout(TOKEN_TTL_S + 10):
        while await _is_valid(guarded, first):  # noqa: ASYNC110 - etcd's clock, no event to wait on
            await asyncio.sleep(TOKEN_TTL_S + 1.5)  # asking prolongs the token
    async with asyncio.timeout(T), contextlib.aclosing(store.watch("/open/", revision)) as batches:
        async for batch in batches:
            if batch.changes:
                assert batch.changes[0].value == b"1"
                break
    assert store._calls._token != first
    store._calls._token = first
    assert (await store.txn([], [Put("/open/a", b"2")], timeout_s=T)).succeeded


async def _is_valid(cluster: Cluster, token: str) -> bool:
    with contextlib.suppress(RuntimeError):
        cluster.put("/open/probe", "1", token)
        return True
    return False


async def test_what_a_user_may_not_do_is_refused(
    guarded: Cluster, open_store: Callable[..., EtcdStore]
) -> None:
    reader = open_store(*guarded.members, user="reader", password="reader-password")  # noqa: S106 - a test's
    await reader.get("/open/a", timeout_s=T)
    for refused in (
        reader.get("/closed", timeout_s=T),
        reader.txn([], [Put("/open/a", b"x")], timeout_s=T),
        anext(reader.watch("/closed/", 0)),
    ):
        with pytest.raises(RejectedError):
            await refused


async def test_a_wrong_password_is_refused_in_words(
    guarded: Cluster, open_store: Callable[..., EtcdStore]
) -> None:
    store = open_store(*guarded.members, user="root", password="wrong")  # noqa: S106 - a test's
    with pytest.raises(RejectedError, match="invalid user ID or password"):
        await store.get("/k", timeout_s=T)
    with pytest.raises(RejectedError, match="user name is empty"):
        await open_store(*guarded.members).get("/k", timeout_s=T)
