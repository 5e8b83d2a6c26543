"""The gRPC link on real sockets: hello before anything, refusals that name the leader."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from llmgw.domain.messages import Ack, AgentHeartbeat, Down, Register, Up
from llmgw.domain.node import NodeFacts
from llmgw.wire.link import (
    AgentListener,
    GrpcDialer,
    Hello,
    LeaderStream,
    NodeStream,
    RefusalKind,
    RefusedError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

REGISTER = Register("n1", NodeFacts("host", "127.0.0.1"))


@contextlib.asynccontextmanager
async def linked(
    handler: Callable[[NodeStream], Awaitable[None]],
) -> AsyncIterator[LeaderStream]:
    """An open stream to a listener with this handler."""
    listener = AgentListener(handler, tls=None)
    port = await listener.start("127.0.0.1:0")
    stream = GrpcDialer(tls=None).open(f"127.0.0.1:{port}", "localhost")
    try:
        async with asyncio.timeout(10):
            yield stream
    finally:
        await stream.close()
        await listener.stop(0)


async def test_messages_go_both_ways_after_the_hello() -> None:
    heard: list[Up | None] = []

    async def leader(stream: NodeStream) -> None:
        await stream.hello(Hello("cp-1", 7))
        heard.append(await stream.receive())
        await stream.send(Down(7, "m1", Ack(1.0)))
        heard.append(await stream.receive())

    async with linked(leader) as stream:
        assert await stream.hello() == Hello("cp-1", 7)
        await stream.send(Up(7, REGISTER))
        assert await stream.receive() == Down(7, "m1", Ack(1.0))
        await stream.send(Up(7, AgentHeartbeat(1)))
        assert await stream.receive() is None
    assert heard == [Up(7, REGISTER), Up(7, AgentHeartbeat(1))]


@pytest.mark.parametrize("kind", list(RefusalKind))
async def test_a_refusal_before_the_first_message_names_the_leader(kind: RefusalKind) -> None:
    async def standby(_stream: NodeStream) -> None:
        raise RefusedError(
            kind, "cp-2 stands by", leader_address="10.0.0.1:8443", term=4, retry_after_s=0.25
        )

    async with linked(standby) as stream:
        with pytest.raises(RefusedError) as caught:
            await stream.hello()
    refused = caught.value
    assert (refused.kind, refused.reason) == (kind, "cp-2 stands by")
    assert (refused.leader_address, refused.term, refused.retry_after_s) == (
        "10.0.0.1:8443",
        4,
        0.25,
    )


async def test_a_stream_closed_later_says_why_on_read_and_on_write() -> None:
    async def deposed(stream: NodeStream) -> None:
        await stream.hello(Hello("cp-1", 7))
        raise RefusedError(RefusalKind.UNAVAILABLE, "no longer leading", leader_address="b:1")

    async with linked(deposed) as stream:
        await stream.hello()
        with pytest.raises(RefusedError, match="no longer leading") as caught:
            await stream.receive()
        assert caught.value.leader_address == "b:1"
        with pytest.raises(RefusedError, match="no longer leading"):
            await stream.send(Up(7, REGISTER))


async def test_nobody_there_is_unavailable() -> None:
    async def handler(_stream: NodeStream) -> None:
        raise AssertionError

    listener = AgentListener(handler, tls=None)
    port = await listener.start("127.0.0.1:0")
    await listener.stop(0)
    stream = GrpcDialer(tls=None).open(f"127.0.0.1:{port}", "localhost")
    async with asyncio.timeout(10):
        with pytest.raises(RefusedError) as caught:
            await stream.hello()
        await stream.close()
    assert caught.value.kind is RefusalKind.UNAVAILABLE


async def test_the_handler_learns_that_the_agent_left() -> None:
    left = asyncio.Event()

    async def leader(stream: NodeStream) -> None:
        await stream.hello(Hello("cp-1", 7))
        try:
            await stream.receive()
        finally:
            left.set()

    async with linked(leader) as stream:
        await stream.hello()
        await stream.close()
        await left.wait()


async def test_a_taken_address_is_an_oserror_that_names_it() -> None:
    async def handler(_stream: NodeStream) -> None:
        return

    first, second = AgentListener(handler, tls=None), AgentListener(handler, tls=None)
    port = await first.start("127.0.0.1:0")
    try:
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            await second.start(f"127.0.0.1:{port}")
    finally:
        await first.stop(0)
        await second.stop(0)


async def test_without_certificates_nobody_is_authenticated() -> None:
    seen: list[tuple[bool, str | None]] = []

    async def leader(stream: NodeStream) -> None:
        seen.append((stream.authenticated, stream.common_name))
        await stream.hello(Hello("cp-1", 1))

    async with linked(leader) as stream:
        await stream.hello()
    assert seen == [(False, None)]
