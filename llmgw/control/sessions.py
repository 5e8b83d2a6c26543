"""The agents' streams of one term: who may speak, in which order, and what reaches the fleet.

Order on every registration: hello (leader id and term), Register, Ack, Provision, adoption, and
only then is the node open for placement. A second stream of a node replaces the first, whose
reader ends with it: nothing that arrives on a replaced stream reaches the fleet. With TLS the
verified certificate's common name decides who the node is.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from ha.store import StoreError
from llmgw.control.core.events import (
    Disconnected,
    Heard,
    Opened,
    Registered,
    ResultCame,
    StatusCame,
)
from llmgw.control.errors import CommandError
from llmgw.control.session import Session
from llmgw.domain.messages import (
    Ack,
    AgentHeartbeat,
    CommandResult,
    Provision,
    Register,
    ShardStatus,
)
from llmgw.kit.logs import get_logger
from llmgw.wire.convert import MalformedMessageError
from llmgw.wire.link import Hello, RefusalKind, RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ha.clock import Clock
    from ha.elector import Leadership
    from llmgw.control.core.events import Event
    from llmgw.domain.messages import DownBody, Up
    from llmgw.kit.journal import Journal
    from llmgw.wire.link import NodeStream

FIRST_MESSAGE_S = 10.0
HEARTBEATS_MISSED_MAX = 3
DRAIN_POLL_S = 0.01

_log = get_logger(__name__)


class Sessions:
    """All streams under one leadership.

    Args:
        leadership: the term these streams belong to.
        clock: for ages.
        leader_id: this control plane's name, said in the hello.
        heartbeat_interval_s: told to agents, and how often this side sends.
        on_event: takes what agents say.
        admit: makes a node's first sight durable; raises when that cannot be done.
        on_higher_term: told when an agent has accepted a higher term than this one.
        journal: records what is sent.
    """

    def __init__(
        self,
        leadership: Leadership,
        clock: Clock,
        *,
        leader_id: str,
        heartbeat_interval_s: float,
        on_event: Callable[[Event], None],
        admit: Callable[[str], Awaitable[None]],
        on_higher_term: Callable[[int], None],
        journal: Journal,
    ) -> None:
        self._leadership = leadership
        self._clock = clock
        self._leader_id = leader_id
        self._interval_s = heartbeat_interval_s
        self._on_event = on_event
        self._admit = admit
        self._on_higher_term = on_higher_term
        self._journal = journal
        self._by_node: dict[str, Session] = {}
        self._registrations = itertools.count(1)
        self._ticks = itertools.count(1)

    @property
    def connected(self) -> Mapping[str, Session]:
        """Open streams by node id."""
        return self._by_node

    async def serve(self, stream: NodeStream) -> None:
        """Hold one stream until it ends.

        Raises:
            RefusedError: the peer may not speak, or the stream is closed with a reason.
        """
        if stream.authenticated and not stream.common_name:
            raise RefusedError(
                RefusalKind.UNAUTHENTICATED,
                "no verified client certificate with a common name: it says which node this is",
            )
        await stream.hello(Hello(self._leader_id, self._leadership.term))
        register = await self._first_message(stream)
        session = Session(
            register.node_id,
            next(self._registrations),
            stream,
            self._leadership,
            self._clock,
            heartbeat_interval_s=self._interval_s,
            next_tick=lambda: next(self._ticks),
            journal=self._journal,
        )
        self._replace(session)
        try:
            await self._run(session, stream, register)
        finally:
            session.close(None)
            if self._by_node.get(session.node_id) is session:
                del self._by_node[session.node_id]
                self._on_event(Disconnected(session.node_id, session.registration))
                _log.info("agent detached", node=session.node_id, term=self._leadership.term)
        if session.refusal is not None:
            raise session.refusal

    def send(self, node_id: str, body: DownBody) -> str:
        """Queue a command; returns its message id.

        Raises:
            CommandError: no stream, a full queue, or this process does not lead now.
        """
        if not self._leadership.is_leader():
            raise CommandError("this control plane may not command now")
        session = self._by_node.get(node_id)
        if session is None:
            raise CommandError(f"no agent connected for node {node_id}")
        return session.send(body)

    def close_silent(self) -> None:
        """Close streams on which nothing came for three heartbeat periods."""
        limit_s = HEARTBEATS_MISSED_MAX * self._interval_s
        for session in list(self._by_node.values()):
            silent_s = self._clock.now_s() - session.heard_at_s
            if silent_s > limit_s:
                reason = f"nothing heard from {session.node_id} for {silent_s:.1f} s"
                _log.warning("closing a silent stream", node=session.node_id, reason=reason)
                session.close(RefusedError(RefusalKind.UNAVAILABLE, reason))

    def restart_timers(self) -> None:
        """This process listened to nobody for a while: count silence anew."""
        for session in self._by_node.values():
            session.heard()

    def wake(self) -> None:
        """Leadership may have changed: let every writer look."""
        for session in self._by_node.values():
            session.wake()

    def close_all(self, refusal: RefusedError) -> None:
        """Close every stream with a status."""
        for session in list(self._by_node.values()):
            session.close(refusal)

    async def drain(self, timeout_s: float) -> bool:
        """Wait until everything queued is written, at most so long; says whether it is."""
        deadline_s = self._clock.now_s() + timeout_s
        while any(session.queued for session in self._by_node.values()):
            if self._clock.now_s() >= deadline_s:
                return False
            await asyncio.sleep(DRAIN_POLL_S)
        return True

    # ---- one stream ----------------------------------------------------------------------------

    async def _first_message(self, stream: NodeStream) -> Register:
        try:
            async with asyncio.timeout(FIRST_MESSAGE_S):
                up = await stream.receive()
        except TimeoutError:
            up = None
        except MalformedMessageError as error:
            raise RefusedError(RefusalKind.INVALID_ARGUMENT, str(error)) from error
        if up is not None:
            self._check_term(up)
        if up is None or not isinstance(up.body, Register) or not up.body.node_id:
            raise RefusedError(
                RefusalKind.INVALID_ARGUMENT, "the first message must be Register with a node id"
            )
        self._check_identity(stream, up.body.node_id)
        return up.body

    def _check_identity(self, stream: NodeStream, node_id: str) -> None:
        if stream.authenticated and stream.common_name != node_id:
            _log.warning("refused", node=node_id, certificate=stream.common_name)
            raise RefusedError(
                RefusalKind.PERMISSION_DENIED,
                f"the certificate names {stream.common_name!r}, the message {node_id!r}",
            )

    def _check_term(self, up: Up) -> None:
        highest = up.term
        if isinstance(up.body, CommandResult) and up.body.stale_term:
            highest = max(highest, up.body.highest_term)
        if highest > self._leadership.term:
            self._on_higher_term(highest)
            raise RefusedError(
                RefusalKind.UNAVAILABLE,
                f"term {highest} was accepted before; this leader raises its own above it",
                retry_after_s=self._interval_s,
            )

    def _replace(self, session: Session) -> None:
        previous = self._by_node.get(session.node_id)
        self._by_node[session.node_id] = session
        if previous is not None:
            _log.info("a newer stream replaces an older one", node=session.node_id)
            previous.close(
                RefusedError(RefusalKind.UNAVAILABLE, "replaced by a newer stream of this node")
            )

    async def _run(self, session: Session, stream: NodeStream, register: Register) -> None:
        async with asyncio.TaskGroup() as group:
            # The writer runs before anything is queued: a queue that nobody empties would hang.
            tasks = [
                group.create_task(self._guard(session, session.write())),
                group.create_task(self._guard(session, self._read(session, stream, register))),
            ]
            await session.ended.wait()
            for task in tasks:
                task.cancel()

    async def _guard(self, session: Session, work: Awaitable[None]) -> None:
        """Whatever ends one half of a stream ends the other."""
        refusal: RefusedError | None = None
        try:
            await work
        except RefusedError as refused:
            refusal = refused
        except MalformedMessageError as error:
            refusal = RefusedError(RefusalKind.INVALID_ARGUMENT, str(error))
        except StoreError as error:
            reason = f"the roster cannot be written: {error}"
            refusal = RefusedError(RefusalKind.UNAVAILABLE, reason)
        except Exception as error:  # noqa: BLE001 - a broken stream shows as many kinds of error
            _log.info("stream broke", node=session.node_id, error=repr(error))
        session.close(refusal)

    async def _read(self, session: Session, stream: NodeStream, register: Register) -> None:
        session.send(Ack(self._interval_s))
        session.send(Provision())
        self._on_event(Registered(session.registration, register))
        await self._admit(session.node_id)
        if self._is_current(session):
            self._on_event(Opened(session.node_id, session.registration))
            _log.info(
                "agent attached",
                node=session.node_id,
                term=self._leadership.term,
                shards=len(register.shards),
            )
        while (up := await stream.receive()) is not None and self._is_current(session):
            self._take(session, up)

    def _is_current(self, session: Session) -> bool:
        return self._by_node.get(session.node_id) is session and not session.ended.is_set()

    def _take(self, session: Session, up: Up) -> None:
        body = up.body
        session.heard(body.loop_tick if isinstance(body, AgentHeartbeat) else None)
        self._check_term(up)
        node_id = session.node_id
        if isinstance(body, AgentHeartbeat):
            self._on_event(Heard(node_id, body))
        elif isinstance(body, ShardStatus):
            self._on_event(StatusCame(node_id, body))
        elif isinstance(body, CommandResult):
            self._on_event(ResultCame(node_id, body))
        elif isinstance(body, Register):
            if body.node_id != node_id:
                raise RefusedError(
                    RefusalKind.PERMISSION_DENIED,
                    f"this stream is {node_id!r}'s, the message names {body.node_id!r}",
                )
            self._on_event(Registered(session.registration, body))
