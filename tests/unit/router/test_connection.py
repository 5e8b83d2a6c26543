"""The client's parser: answers split anywhere, cut anywhere, and how long it waits."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router.connection import BUFFER_BYTES_MAX, Connection
from llmgw.router.core.retry import Failure
from llmgw.router.errors import ClientLeftError, UpstreamError

CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n00006;ext=1\r\n world\r\n0\r\nx-trailer: 1\r\n\r\n"
)
SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nhello world"
UNSIZED = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello world"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.s = 100.0

    def now_s(self) -> float:
        return self.s


class Transport(asyncio.Transport):
    """What the connection does to its socket."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        super().__init__({"socket": connection})
        self.sent = b""
        self.aborted = False
        self.reading = True
        self.unsent = 0

    def writelines(self, list_of_data: Any) -> None:
        self.sent += b"".join(list_of_data)

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unsent


class Peer:
    """A connection and the other end of it."""

    def __init__(self, clock: Time | None = None) -> None:
        self.lost: list[Connection] = []
        self.transport = Transport()
        self.connection = Connection(clock or Time(), self.lost.append)
        self.connection.connection_made(self.transport)
        self.connection.start(b"POST / HTTP/1.1\r\n\r\n", b"body")

    def feed(self, data: bytes, cuts: list[int]) -> None:
        position = 0
        for cut in [*cuts, len(data)]:
            if piece := data[position : position + cut]:
                self.connection.data_received(piece)
            position += cut

    async def whole(self) -> tuple[int, bytes]:
        body = b""
        async with asyncio.timeout(5):
            head = await self.connection.head(silence_s=5, nudge_s=None)
            assert head is not None
            while piece := await self.connection.read(silence_s=5, nudge_s=None):
                body += piece
        return head.status, body


@settings(deadline=None)
@given(st.sampled_from([CHUNKED, SIZED]), st.lists(st.integers(1, 50), max_size=60))
def test_an_answer_split_anywhere_is_the_same(answer: bytes, cuts: list[int]) -> None:
    async def check() -> None:
        peer = Peer()
        for _ in range(2):  # keep-alive: the second exchange must be as good as the first
            peer.feed(answer, cuts)
            assert await peer.whole() == (200, b"hello world")
            assert peer.connection.finish()
            peer.connection.start(b"POST / HTTP/1.1\r\n\r\n", b"")
        assert not peer.transport.aborted

    asyncio.run(check())


@settings(deadline=None)
@given(st.sampled_from([CHUNKED, SIZED]), st.integers(1, len(CHUNKED)))
def test_an_answer_cut_anywhere_is_never_taken_for_whole(answer: bytes, missing: int) -> None:
    length = max(0, len(answer) - missing)

    async def check() -> None:
        peer = Peer()
        peer.feed(answer[:length], [])
        peer.connection.connection_lost(None)
        with pytest.raises(UpstreamError) as caught:
            await peer.whole()
        assert caught.value.failure is Failure.CLOSED
        assert not peer.connection.finish()
        assert peer.lost == [peer.connection]

    asyncio.run(check())


async def test_without_a_length_a_clean_end_is_the_end_and_a_reset_is_not() -> None:
    peer = Peer()
    peer.feed(UNSIZED, [])
    peer.connection.connection_lost(None)
    assert await peer.whole() == (200, b"hello world")
    assert not peer.connection.finish()
    peer = Peer()
    peer.feed(UNSIZED, [])
    peer.connection.connection_lost(ConnectionResetError())
    with pytest.raises(UpstreamError):
        await peer.whole()


async def test_a_204_has_no_body_and_keeps_the_connection() -> None:
    peer = Peer()
    peer.feed(EMPTY, [])
    assert await peer.whole() == (204, b"")
    assert peer.connection.finish()


async def test_header_names_are_lower_case_and_trailers_dropped() -> None:
    peer = Peer()
    peer.feed(CHUNKED, [])
    head = await peer.connection.head(silence_s=5, nudge_s=None)
    assert head is not None
    assert head.get(b"content-type") == b"text/event-stream"
    assert head.get(b"x-trailer") == b""


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000,
    ],
)
async def test_what_is_malformed_fails_and_closes(answer: bytes) -> None:
    peer = Peer()
    peer.feed(answer, [])
    with pytest.raises(UpstreamError) as caught:
        await peer.whole()
    assert caught.value.failure is Failure.MALFORMED
    assert peer.transport.aborted


@pytest.mark.parametrize(
    "answer",
    [
        SIZED + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        SIZED + b"junk",
        SIZED.replace(b"200 OK\r\n", b"200 OK\r\nconnection: close\r\n"),
        b"HTTP/1.0 200 OK\r\ncontent-length: 11\r\n\r\nhello world",
    ],
)
async def test_a_connection_that_cannot_be_trusted_is_not_used_again(answer: bytes) -> None:
    peer = Peer()
    peer.feed(answer, [])
    assert await peer.whole() == (200, b"hello world")
    assert not peer.connection.finish()
    assert peer.transport.aborted


async def test_neither_is_one_whose_request_was_not_wholly_sent_or_answer_not_wholly_read() -> None:
    peer = Peer()
    peer.feed(SIZED, [])
    assert await peer.whole() == (200, b"hello world")
    peer.transport.unsent = 1
    assert not peer.connection.finish()
    peer = Peer()
    peer.feed(SIZED, [])
    assert not peer.connection.finish()


async def test_bytes_that_nobody_asked_for_close_an_idle_connection() -> None:
    peer = Peer()
    peer.feed(SIZED, [])
    await peer.whole()
    assert peer.connection.finish()
    assert peer.connection.usable()
    peer.connection.data_received(b"HTTP/1.1 408 Timeout\r\n\r\n")
    assert not peer.connection.usable()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 408 Timeout\r\n\r\n"])
async def test_a_close_that_has_arrived_but_was_not_handled_yet_counts(said: bytes) -> None:
    mine, other = socket.socketpair()
    with mine, other:
        connection = Connection(Time(), lambda _: None)
        connection.connection_made(Transport(mine))
        assert connection.usable()
        if said:
            other.sendall(said)
        else:
            other.close()
        assert not connection.usable()


async def test_a_reader_that_is_slow_holds_the_engine_back() -> None:
    peer = Peer()
    peer.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", [])
    while peer.transport.reading:
        peer.connection.data_received(b"x" * 10_000)
    await peer.connection.head(silence_s=5, nudge_s=None)
    piece = await peer.connection.read(silence_s=5, nudge_s=None)
    assert piece is not None
    assert BUFFER_BYTES_MAX < len(piece) <= BUFFER_BYTES_MAX + 10_000
    assert peer.transport.reading


async def test_what_arrived_is_read_before_an_error_shows() -> None:
    peer = Peer()
    peer.feed(SIZED[:-1], [])
    peer.connection.connection_lost(ConnectionResetError())
    await peer.connection.head(silence_s=5, nudge_s=None)
    assert await peer.connection.read(silence_s=5, nudge_s=None) == b"hello worl"
    with pytest.raises(UpstreamError):
        await peer.connection.read(silence_s=5, nudge_s=None)


async def test_whoever_waits_is_told_that_the_client_left() -> None:
    peer = Peer()
    waiting = asyncio.create_task(peer.connection.head(silence_s=5, nudge_s=None))
    await asyncio.sleep(0)
    peer.connection.fail(ClientLeftError("left"))
    with pytest.raises(ClientLeftError):
        await waiting


@pytest.mark.parametrize(
    ("begin", "failure"), [(b"", Failure.FIRST_BYTE_LATE), (SIZED[:-11], Failure.SILENT)]
)
async def test_silence_is_judged_by_the_clock_and_not_by_timers(
    begin: bytes, failure: Failure
) -> None:
    clock = Time()
    peer = Peer(clock)
    if begin:
        peer.feed(begin, [])
        await peer.connection.head(silence_s=1, nudge_s=None)
    read = peer.connection.read if begin else peer.connection.head
    waiting: asyncio.Task[Any] = asyncio.create_task(
        cast("Any", read(silence_s=0.05, nudge_s=None))
    )
    await asyncio.sleep(0.2)  # timers are long due, but the clock has not moved
    assert not waiting.done()
    clock.s += 0.05
    with pytest.raises(UpstreamError) as caught:
        await waiting
    assert caught.value.failure is failure


async def test_a_later_shorter_limit_is_kept_although_a_longer_one_was_armed_before() -> None:
    clock = Time()
    peer = Peer(clock)
    waiting = asyncio.create_task(peer.connection.head(silence_s=600, nudge_s=None))
    await asyncio.sleep(0)
    peer.feed(SIZED[:-11], [])
    await waiting
    reading = asyncio.create_task(peer.connection.read(silence_s=0.02, nudge_s=None))
    await asyncio.sleep(0)
    clock.s += 0.02
    async with asyncio.timeout(2):
        with pytest.raises(UpstreamError):
            await reading


async def test_a_nudge_wakes_without_ending_the_silence() -> None:
    clock = Time()
    peer = Peer(clock)
    for _ in range(2):
        waiting = asyncio.create_task(peer.connection.head(silence_s=0.05, nudge_s=0.02))
        await asyncio.sleep(0)
        clock.s += 0.02
        assert await waiting is None
    waiting = asyncio.create_task(peer.connection.head(silence_s=0.05, nudge_s=0.02))
    await asyncio.sleep(0)
    clock.s += 0.02
    with pytest.raises(UpstreamError):
        await waiting
