"""Finding the leader: every address of every control name is dialled at once, on its own stream.

Each address has a task that dials, waits for a hello for `HELLO_TIMEOUT_S`, and dials again after
a back-off; a silent address holds up nobody. When somebody accepts, the others get `GRACE_S` to
accept with a higher term; everything but the winner is closed. Names are resolved here, again
every `RESOLVE_INTERVAL_S`; the decisions are in `llmgw.agent.core.dialling`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.agent.core.dialling import HINTS_MAX, Candidates, Target, backoff_s, targets
from llmgw.kit.logs import get_logger
from llmgw.wire.link import RefusalKind, RefusedError

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

    from llmgw.wire.link import Dialer, Hello, LeaderStream

HELLO_TIMEOUT_S = 5.0
GRACE_S = 0.5
RESOLVE_INTERVAL_S = 1.0
RESOLVE_TIMEOUT_S = 3.0
STORY_INTERVAL_S = 10.0

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ControlName:
    """One `--control`: a host, perhaps with many addresses, and what TLS verifies there."""

    host: str
    port: int
    server_name: str


@dataclass(frozen=True, slots=True)
class Found:
    """A stream whose other end says that it leads."""

    target: Target
    stream: LeaderStream
    hello: Hello


async def resolve(name: ControlName) -> Sequence[Target] | None:
    """Every address of a name; None when resolution fails."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            answers = await loop.getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError):
        return None
    found = []
    for family, _, _, _, place in answers:
        host = f"[{place[0]!s}]" if family == socket.AF_INET6 else str(place[0])
        address = f"{host}:{name.port}"
        found.append(Target(address, name.server_name))
    return found


class Search:
    """Looks for the leader, again and again; remembers addresses for when DNS fails."""

    def __init__(
        self,
        names: Sequence[ControlName],
        dialer: Dialer,
        random: random.Random,
        *,
        resolver: Callable[[ControlName], Awaitable[Sequence[Target] | None]] = resolve,
    ) -> None:
        self._names = names
        self._dialer = dialer
        self._random = random
        self._resolver = resolver
        self._last_good: dict[str, Sequence[Target]] = {}

    async def find(self, highest_term: int) -> Found:
        """Dial until somebody leads; returns the open stream, everything else closed."""
        hunt = _Hunt(self._dialer, self._random, highest_term)
        try:
            async with asyncio.TaskGroup() as group:
                dialling = group.create_task(self._dial_all(hunt, group))
                telling = group.create_task(_tell(hunt))
                found = await hunt.winner()
                for task in (dialling, telling, *hunt.tasks.values()):
                    task.cancel()
        except BaseException:
            await hunt.close_all_but(None)
            raise
        await hunt.close_all_but(found)
        return found

    async def _dial_all(self, hunt: _Hunt, group: asyncio.TaskGroup) -> None:
        while True:
            answers = await asyncio.gather(*(self._resolver(name) for name in self._names))
            resolved = {
                f"{name.host}:{name.port}": answer
                for name, answer in zip(self._names, answers, strict=True)
            }
            for name, answer in resolved.items():
                if answer:
                    self._last_good[name] = answer
            wanted = targets(resolved, self._last_good, hunt.hints.values())
            for address in hunt.tasks.keys() - wanted.keys():
                hunt.tasks.pop(address).cancel()
            for address, target in wanted.items():
                if address not in hunt.tasks:
                    hunt.tasks[address] = group.create_task(hunt.court(target))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESOLVE_INTERVAL_S):
                    await hunt.hinted.wait()
            hunt.hinted.clear()


class _Hunt:
    """One search: a task per address, and what they heard."""

    def __init__(self, dialer: Dialer, random: random.Random, highest_term: int) -> None:
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.hints: dict[str, Target] = {}
        self.hinted = asyncio.Event()
        self.refusals: dict[str, str] = {}
        self._dialer = dialer
        self._random = random
        self._candidates = Candidates(highest_term)
        self._found: dict[str, Found] = {}
        self._silent: set[str] = set()
        self._news = asyncio.Event()

    async def winner(self) -> Found:
        """Wait until it is clear to whom to attach."""
        while not self._found:
            await self._next_news()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                while not self._candidates.settled(len(self._silent)):
                    await self._next_news()
        return self._found[self._candidates.best or next(iter(self._found))]

    async def court(self, target: Target) -> None:
        """Dial one address until it accepts."""
        attempt = 0
        while True:
            stream = self._dialer.open(target.address, target.server_name)
            self._silent.add(target.address)
            retry_after_s = 0.0
            try:
                async with asyncio.timeout(HELLO_TIMEOUT_S):
                    hello = await stream.hello()
            except RefusedError as refused:
                self._refused(target, refused)
                retry_after_s = refused.retry_after_s
            except TimeoutError:
                self.refusals[target.address] = f"no hello within {HELLO_TIMEOUT_S:g} s"
            else:
                self._found[target.address] = Found(target, stream, hello)
                self._candidates.accept(target.address, hello.term)
                return
            finally:
                self._silent.discard(target.address)
                self._news.set()
                if target.address not in self._found:
                    await stream.close()
            attempt += 1
            await asyncio.sleep(backoff_s(attempt, self._random.random(), retry_after_s))

    async def close_all_but(self, winner: Found | None) -> None:
        """Close every stream that was accepted and lost."""
        for found in self._found.values():
            if found is not winner:
                await found.stream.close()

    def _refused(self, target: Target, refused: RefusedError) -> None:
        self.refusals[target.address] = refused.reason
        if refused.kind is not RefusalKind.UNAVAILABLE:
            _log.error("refused", address=target.address, kind=refused.kind, reason=refused.reason)
        self._candidates.name(refused.term)
        hint = refused.leader_address
        if hint and hint not in self.tasks and len(self.hints) < HINTS_MAX:
            self.hints[hint] = Target(hint, target.server_name)
            self.hinted.set()

    async def _next_news(self) -> None:
        await self._news.wait()
        self._news.clear()


async def _tell(hunt: _Hunt) -> None:
    """A search that goes on says so, and what it hears."""
    while True:
        await asyncio.sleep(STORY_INTERVAL_S)
        _log.warning("no_leader_found_yet", answers=dict(hunt.refusals))
