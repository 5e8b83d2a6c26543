"""What each kind of watch response means, told apart without a server."""

from __future__ import annotations

from typing import Any

import pytest

from ha.etcd import wire_pb2 as wire
from ha.etcd.calls import Calls
from ha.etcd.watching import _StaleTokenError, _Watch
from ha.store import Change, CompactedError, UnavailableError, WatchBatch

CLUSTER = 9


def watch(start_revision: int = 10, user: str = "") -> _Watch:
    return _Watch(Calls(["127.0.0.1:1"], None, user, ""), "/p/", start_revision)


def response(revision: int, **fields: Any) -> wire.WatchResponse:
    return wire.WatchResponse(
        header=wire.Header(cluster_id=CLUSTER, revision=revision),
        **fields,
    )


def event(key: str, revision: int, *, deleted: bool = False) -> wire.Event:
    kv = wire.KeyValue(key=key.encode(), mod_revision=revision, create_revision=revision)
    return wire.Event(type=wire.Event.DELETE if deleted else wire.Event.PUT, kv=kv)


async def test_an_opened_watch_is_current_and_starts_where_it_was_asked_to() -> None:
    assert watch(10)._take(response(50, created=True)) == WatchBatch((), 10, CLUSTER)
    assert watch(0)._take(response(50, created=True)) == WatchBatch((), 51, CLUSTER)
    assert watch(51)._take(response(50, created=True)) == WatchBatch((), 51, CLUSTER)


async def test_a_store_behind_the_start_revision_is_an_error() -> None:
    """Restored from a backup, it would say nothing until it had caught up."""
    with pytest.raises(UnavailableError, match="at revision 5, before 10"):
        watch(10)._take(response(5, created=True))


async def test_the_resume_point_is_after_the_last_event_not_the_header() -> None:
    batch = watch()._take(response(5000, events=[event("/p/a", 11), event("/p/b", 12)]))
    assert batch is not None
    assert batch.resume_revision == 13
    assert batch.changes == (Change("/p/a", b"", 11, 11), Change("/p/b", b"", 12, 12))


async def test_a_delete_has_neither_value_nor_create_revision() -> None:
    batch = watch()._take(response(11, events=[event("/p/a", 11, deleted=True)]))
    assert batch is not None
    assert batch.changes == (Change("/p/a", None, 11, 0),)


async def test_an_answer_to_a_progress_request_moves_nothing() -> None:
    assert watch()._take(response(5000, watch_id=-1)) == WatchBatch((), 10, CLUSTER)


async def test_a_progress_notification_of_the_server_moves_the_resume_point() -> None:
    assert watch()._take(response(5000, watch_id=0)) == WatchBatch((), 5001, CLUSTER)


async def test_fragments_are_put_together() -> None:
    subject = watch()
    assert subject._take(response(20, events=[event("/p/a", 11)], fragment=True)) is None
    assert subject.resume == 10, "half a revision is no point to resume at"
    batch = subject._take(response(20, events=[event("/p/b", 11)]))
    assert batch is not None
    assert [change.key for change in batch.changes] == ["/p/a", "/p/b"]
    assert batch.resume_revision == 12


async def test_a_compacted_start_is_an_error_though_the_stream_stays_open() -> None:
    with pytest.raises(CompactedError) as caught:
        watch()._take(response(50, canceled=True, compact_revision=40))
    assert caught.value.revision == 40


async def test_a_cancelled_watch_is_an_error_and_with_a_user_perhaps_the_token() -> None:
    with pytest.raises(UnavailableError, match="some reason"):
        watch()._take(response(50, canceled=True, cancel_reason="some reason"))
    with pytest.raises(_StaleTokenError):
        watch(user="u")._take(response(50, canceled=True, cancel_reason="permission denied"))
