"""The admin client: the next address when one is down, the leader when one is named, bounded."""

from __future__ import annotations

import concurrent.futures
import socket
from typing import Any

import pytest

from llmgw.ctl.client import AdminClient, InvalidCatalogError, Limits, address_of
from llmgw.ctl.errors import (
    ConflictError,
    CtlError,
    NotFoundError,
    RefusedError,
    UnreachableError,
)
from tests.support.fake_admin import FakeAdmin, not_leader

Planes = tuple[FakeAdmin, FakeAdmin]
READ = "GET /v1/status"
WRITE = "POST /v1/catalog/apply"
QUICK = Limits(connect_s=0.5, read_answer_s=0.3, write_answer_s=0.3, leader_wait_s=2, pause_s=0.5)


class StepClock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.time_s = 100.0
        self.pauses: list[float] = []

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        self.time_s += duration_s
        self.pauses.append(duration_s)


def client(*addresses: str, clock: StepClock | None = None) -> AdminClient:
    clock = clock or StepClock()
    return AdminClient(addresses, limits=QUICK, clock=clock, sleep=clock.sleep)


def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_the_next_address_is_tried_when_one_is_down(planes: Planes) -> None:
    planes[1].on(READ, 200, {"id": "cp-2"})
    asking = client(nobody(), planes[1].url)
    assert asking.get("/v1/status") == {"id": "cp-2"}
    assert asking.base == planes[1].url


def test_the_next_address_is_tried_when_one_hangs(planes: Planes) -> None:
    """A stopped process still accepts connections: only a timeout tells."""
    planes[1].on(READ, 200, {"id": "cp-2"})
    with socket.socket() as hanging:
        hanging.bind(("127.0.0.1", 0))
        hanging.listen()
        address = f"127.0.0.1:{hanging.getsockname()[1]}"
        assert client(address, planes[1].url).get("/v1/status") == {"id": "cp-2"}


def test_when_nobody_answers_each_address_is_named_with_its_reason() -> None:
    one, two = nobody(), nobody()
    clock = StepClock()
    with pytest.raises(UnreachableError) as caught:
        client(one, two, clock=clock).get("/v1/status")
    assert f"{one}: connection refused; {two}: connection refused" in str(caught.value)
    assert clock.pauses == []


def test_a_write_goes_to_the_leader_that_a_standby_names(planes: Planes) -> None:
    standby, leader = planes
    standby.answers[WRITE] = lambda _: not_leader(leader)
    leader.on(WRITE, 200, {"revision": 5})
    asking = client(standby.url)
    assert asking.post("/v1/catalog/apply", {"models": []}) == {"revision": 5}
    assert leader.asked == [(WRITE, {"models": []})]
    assert asking.base == leader.url


def test_standbys_that_name_each_other_do_not_send_the_client_round_for_ever(
    planes: Planes,
) -> None:
    planes[0].answers[WRITE] = lambda _: not_leader(planes[1])
    planes[1].answers[WRITE] = lambda _: not_leader(planes[0])
    with pytest.raises(UnreachableError, match="leads"):
        client(planes[0].url, planes[1].url).post("/v1/catalog/apply", {})
    rounds = QUICK.leader_wait_s / QUICK.pause_s + 1
    assert len(planes[0].asked) <= rounds
    assert len(planes[1].asked) <= rounds


def test_an_election_is_waited_for(planes: Planes) -> None:
    answers = [not_leader(None), (503, {"error": {"code": "frozen"}}), (200, {"revision": 2})]
    planes[0].answers[WRITE] = lambda _: answers.pop(0)
    clock = StepClock()
    assert client(planes[0].url, clock=clock).post("/v1/catalog/apply", {}) == {"revision": 2}
    assert clock.pauses == [QUICK.pause_s] * 2


def test_a_cluster_without_a_leader_is_given_up_after_a_bounded_time(planes: Planes) -> None:
    planes[0].answers[WRITE] = lambda _: not_leader(None)
    clock = StepClock()
    with pytest.raises(UnreachableError, match="no control plane leads"):
        client(planes[0].url, clock=clock).post("/v1/catalog/apply", {})
    assert sum(clock.pauses) == QUICK.leader_wait_s


def test_a_named_leader_that_is_dead_is_waited_for_like_an_election(planes: Planes) -> None:
    refusal: Any = not_leader(planes[1])
    refusal[1]["error"]["leader"]["admin_address"] = nobody().removeprefix("http://")
    answers = [refusal, (200, {"revision": 9})]
    planes[0].answers[WRITE] = lambda _: answers.pop(0)
    assert client(planes[0].url).post("/v1/catalog/apply", {}) == {"revision": 9}


def test_a_write_that_was_sent_and_not_answered_is_not_sent_again(planes: Planes) -> None:
    """It may have been done."""
    planes[0].answers[WRITE] = lambda _: (0, None)
    planes[1].on(WRITE, 200, {})
    with pytest.raises(UnreachableError, match="may have been done"):
        client(planes[0].url, planes[1].url).post("/v1/catalog/apply", {})
    assert planes[1].asked == []


def test_a_write_is_not_given_to_one_that_hangs(planes: Planes) -> None:
    """A stopped process still takes connections; what it was given, nobody could tell of."""
    planes[1].on(WRITE, 200, {"revision": 9})
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        address = f"http://127.0.0.1:{hangs.getsockname()[1]}"
        asking = client(address, planes[1].url)
        assert asking.post("/v1/catalog/apply", {}) == {"revision": 9}


def test_a_read_that_was_not_answered_is_asked_of_the_next(planes: Planes) -> None:
    planes[0].answers[READ] = lambda _: (0, None)
    planes[1].on(READ, 200, {"id": "cp-2"})
    assert client(planes[0].url, planes[1].url).get("/v1/status") == {"id": "cp-2"}


@pytest.mark.parametrize(
    ("status", "error", "kind", "exit_code"),
    [
        (400, {"code": "bad", "message": "why"}, RefusedError, 2),
        (409, {"code": "conflict", "message": "why", "revision": 7}, ConflictError, 3),
        (404, {"code": "model_not_found", "message": "why", "names": ["x"]}, NotFoundError, 4),
        (500, {"code": "x", "message": "why"}, UnreachableError, 1),
        (422, {"code": "invalid", "message": "why"}, RefusedError, 2),
    ],
)
def test_each_refusal_has_its_kind_and_exit_code(
    planes: Planes, status: int, error: Any, kind: type[CtlError], exit_code: int
) -> None:
    planes[0].on(WRITE, status, {"error": error})
    with pytest.raises(kind, match="why") as caught:
        client(planes[0].url).post("/v1/catalog/apply", {})
    assert caught.value.exit_code == exit_code


def test_problems_of_a_refused_catalog_keep_their_paths(planes: Planes) -> None:
    problem = {"path": ["models", 0, "name"], "reason": "taken"}
    error = {"code": "invalid", "message": "no", "problems": [problem]}
    planes[0].on(WRITE, 422, {"error": error})
    with pytest.raises(InvalidCatalogError) as caught:
        client(planes[0].url).post("/v1/catalog/apply", {})
    assert caught.value.problems == ((("models", 0, "name"), "taken"),)


@pytest.mark.parametrize("content", [b"<html>", b""])
def test_something_else_on_the_port_is_not_taken_for_a_control_plane(
    planes: Planes, content: bytes
) -> None:
    planes[0].on(READ, 200, content)
    with pytest.raises(CtlError, match="does not speak"):
        client(planes[0].url).get("/v1/status")


@pytest.mark.parametrize("error", [None, {"message": "There is no '/v1/status' here."}])
def test_a_server_without_the_admin_api_is_named_and_the_next_is_asked(
    planes: Planes, error: Any
) -> None:
    """A router answers 404 in a form of its own: that is not "no such model"."""
    for asked in (READ, WRITE):
        planes[0].on(asked, 404, {"error": error})
    with pytest.raises(UnreachableError, match="does not speak") as caught:
        client(planes[0].url).get("/v1/status")
    assert planes[0].url in str(caught.value)
    planes[1].on(WRITE, 200, {"revision": 4})
    asking = client(planes[0].url, planes[1].url)
    assert asking.post("/v1/catalog/apply", {}) == {"revision": 4}


def test_what_is_not_http_is_named_in_one_readable_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"\0\0\x12\x04\xff\n")
                connection.recv(1000)

        with concurrent.futures.ThreadPoolExecutor() as threads:
            threads.submit(greet)
            with pytest.raises(UnreachableError, match="does not speak HTTP") as caught:
                client(f"127.0.0.1:{server.getsockname()[1]}").get("/v1/status")
    assert str(caught.value).isprintable()


def test_what_the_leader_says_counts_more_than_a_standby_that_names_it(planes: Planes) -> None:
    standby, leader = planes
    standby.answers[WRITE] = lambda _: not_leader(leader)
    leader.on(WRITE, 503, {"error": {"code": "store_unavailable", "message": "etcd: no space"}})
    with pytest.raises(UnreachableError, match="etcd: no space"):
        client(standby.url, leader.url).post("/v1/catalog/apply", {})


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8081", "http://127.0.0.1:8081"),
        ("http://cp1:8081/", "http://cp1:8081"),
        ("https://cp1", "https://cp1"),
        ("[::1]:8081", "http://[::1]:8081"),
    ],
)
def test_addresses_are_taken_as_people_write_them(text: str, url: str) -> None:
    assert address_of(text) == url


@pytest.mark.parametrize("text", ["ftp://x", "http://", "cp1:99999", "cp1:port", "http://[::1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="--admin"):
        address_of(text)
