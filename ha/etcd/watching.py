"""A watch on etcd that never waits for nothing.

Every way in which a watch can die quietly is made loud: a member cut off from the others (the call
demands a leader), a peer that is frozen (it is asked for progress each second, and given up after
`SILENCE_S` without any word), a compacted start revision (etcd says so and leaves the stream
open), a store that is behind the start revision (restored from a backup, or a member that lags).

The resume point is the last event's revision + 1. The revisions of headers and of answers to
progress requests may be ahead of what was delivered, and are not used for it; a progress
notification that the server sends on its own for this watch is.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc.aio

from ha.core.limits import key_bytes, key_text
from ha.etcd import wire_pb2 as wire
from ha.etcd.channels import being_cancelled
from ha.etcd.errors import TooLargeError, Verdict, judge, refusal
from ha.store import Change, CompactedError, RejectedError, UnavailableError, WatchBatch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ha.etcd.calls import Calls, Metadata

OPEN_TIMEOUT_S = 2.0
PROGRESS_INTERVAL_S = 1.0
SILENCE_S = 3.0


class _StaleTokenError(Exception):
    """The watch was refused for the token it carried."""


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys with this prefix."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0"


class _Watch:
    """One watch over the streams it takes; `resume` is where the next stream starts."""

    def __init__(self, calls: Calls, prefix: str, start_revision: int) -> None:
        self._calls = calls
        self._prefix = prefix
        self._events: list[Any] = []
        self.resume = start_revision
        self.fragment = False

    async def batches(self, metadata: Metadata) -> AsyncGenerator[WatchBatch, None]:
        """What one stream delivers, until it breaks."""
        endpoint = self._calls.endpoints[0]
        if not await endpoint.ready(OPEN_TIMEOUT_S):
            self._calls.leave(endpoint)
            raise UnavailableError(f"watch: {endpoint.address}: no connection")
        stream = endpoint.watch(metadata)
        self._events = []
        try:
            responses = self._responses(stream)
            async with contextlib.aclosing(responses):
                async for response in responses:
                    batch = self._take(response)
                    if batch is not None:
                        yield batch
        except grpc.aio.AioRpcError as error:
            details = error.details() or ""
            verdict = judge(error.code(), details)
            if verdict is Verdict.NEW_TOKEN:
                raise _StaleTokenError from error
            if verdict is Verdict.REFUSED:
                raise refusal("watch", error.code(), details) from error
            self._calls.leave(endpoint)
            trouble = f"{endpoint.address}: {error.code().name}: {details}"
            raise UnavailableError(f"watch: {trouble}") from error
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            raise UnavailableError(f"watch: {endpoint.address}: closed") from None
        except (TimeoutError, asyncio.InvalidStateError):
            self._calls.leave(endpoint)
            raise UnavailableError(f"watch: {endpoint.address} fell silent") from None
        finally:
            stream.cancel()

    async def _responses(self, stream: Any) -> AsyncGenerator[Any, None]:
        """Every response of the stream; TimeoutError after `SILENCE_S` without one."""
        prefix = key_bytes(self._prefix)
        create = wire.WatchCreateRequest(
            key=prefix,
            range_end=prefix_end(prefix),
            start_revision=self.resume,
            progress_notify=True,
            fragment=self.fragment,
        )
        async with asyncio.timeout(SILENCE_S):
            await stream.write(wire.WatchRequest(create_request=create))
        progress = wire.WatchRequest(progress_request=wire.WatchProgressRequest())
        loop = asyncio.get_running_loop()
        while True:
            silent_from_s = loop.time() + SILENCE_S
            reading = asyncio.ensure_future(stream.read())
            try:
                while not reading.done():
                    async with asyncio.timeout_at(silent_from_s):
                        await asyncio.wait({reading}, timeout=PROGRESS_INTERVAL_S)
                        if not reading.done():
                            await stream.write(progress)
            finally:
                if not reading.done():
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
            response = reading.result()
            if response is grpc.aio.EOF:
                raise UnavailableError("watch: the server closed the stream")
            yield response

    def _take(self, response: Any) -> WatchBatch | None:
        """What a response means; None: not a whole batch yet."""
        header = response.header
        if response.compact_revision:
            raise CompactedError(response.compact_revision)
        if response.canceled:
            if self._calls.user:
                raise _StaleTokenError(response.cancel_reason)
            raise UnavailableError(f"watch: cancelled by the server: {response.cancel_reason}")
        if response.created:
            if header.revision + 1 < self.resume:
                raise UnavailableError(
                    f"watch: the store is at revision {header.revision}, before {self.resume}"
                )
            self.resume = self.resume or header.revision + 1
            return WatchBatch((), self.resume, header.cluster_id)
        self._events.extend(response.events)
        if response.fragment:
            return None
        changes = tuple(_change(event) for event in self._events)
        self._events = []
        if changes:
            self.resume = changes[-1].mod_revision + 1
        elif response.watch_id >= 0:
            self.resume = max(self.resume, header.revision + 1)
        return WatchBatch(changes, self.resume, header.cluster_id)


def _change(event: Any) -> Change:
    deleted = event.type == wire.Event.DELETE
    return Change(
        key=key_text(event.kv.key),
        value=None if deleted else event.kv.value,
        mod_revision=event.kv.mod_revision,
        create_revision=0 if deleted else event.kv.create_revision,
    )


async def watch_prefix(
    calls: Calls, prefix: str, start_revision: int
) -> AsyncGenerator[WatchBatch, None]:
    """Changes under a prefix, and a sign of life at least each second.

    Opens a second stream by itself in two cases only, and loses nothing: the token was not valid
    any more, or a batch was too large for one message (etcd then has to cut it, which costs it
    much more, so it is not asked to at first).
    """
    watch = _Watch(calls, prefix, start_revision)
    token_is_new = False
    while True:
        metadata = await calls.metadata(asyncio.get_running_loop().time() + OPEN_TIMEOUT_S)
        try:
            batches = watch.batches(metadata)
            async with contextlib.aclosing(batches):
                async for batch in batches:
                    token_is_new = False
                    yield batch
        except TooLargeError:
            if watch.fragment:
                raise
            watch.fragment = True
        except _StaleTokenError as error:
            if token_is_new:
                raise RejectedError(f"watch: etcd refuses {calls.user!r}: {error}") from error
            token_is_new = True
            calls.forget_token(metadata)
