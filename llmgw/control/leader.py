"""Leads whenever this process is elected: term after term, each from its start to its end.

A term whose start-up (roster, endpoints, catalog) does not finish in time is given up, so that
another candidate may try. At the end of a term every stream is closed with a status that names
the new leader. Streams that come while this process does not lead are refused the same way,
before anything is read from them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from ha.elector import Role
from ha.store import RejectedError, StoreError
from llmgw.control.errors import StartUpError
from llmgw.kit.logs import get_logger
from llmgw.wire.link import RefusalKind, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ha.elector import Elector, Leadership
    from llmgw.control.catalog import CatalogView
    from llmgw.control.term import Term
    from llmgw.wire.link import NodeStream

START_UP_S = 5.0
SUCCESSOR_WAIT_S = 0.3
"""How long the end of a term waits for the new leader's name before it closes streams."""
DRAIN_S = 0.3
START_WAIT_S = 2.0
"""How long a stream is held while a new term starts."""

_log = get_logger(__name__)


class Leader:
    """The leading part of a control plane.

    Args:
        elector: the election this process takes part in.
        view: the catalog.
        make_term: builds the work of one leadership.
    """

    def __init__(
        self,
        elector: Elector,
        view: CatalogView,
        make_term: Callable[[Leadership, Callable[[int], None]], Term],
    ) -> None:
        self._elector = elector
        self._view = view
        self._make_term = make_term
        self._started = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._raise_above: int | None = None
        self._raise_asked = asyncio.Event()
        self.term: Term | None = None
        """The term that is at work; None while starting, and while another leads."""
        self.refusals: Counter[RefusalKind] = Counter()
        """Streams that this process refused or closed with a status while it led."""
        view.on_change = self._wake

    async def run(self) -> None:
        """Lead whenever elected, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_roles())
            group.create_task(self._raise_when_asked())
            while True:
                leadership = await self._elector.lead()
                if leadership.ended.is_set():
                    await asyncio.sleep(0)
                    continue
                await self._one_term(leadership)

    async def serve(self, stream: NodeStream) -> None:
        """Handle one agent's stream (the listener's handler).

        Raises:
            RefusedError: this process does not lead, or does not want the peer.
        """
        term = await self._term_for_streams()
        if term is None:
            raise self.refusal()
        try:
            await term.sessions.serve(stream)
        except RefusedError as refused:
            self.refusals[refused.kind] += 1
            raise
        if term.leadership.ended.is_set():
            raise self.refusal()

    async def resign(self, reason: str) -> None:
        """Hand over: stop commanding, write what is queued, give up the lease."""
        term = self.term
        if term is not None:
            term.stop_commands()
            await term.sessions.drain(DRAIN_S)
        await self._elector.resign(reason)

    async def wait_idle(self) -> None:
        """Wait until no term is at work and its streams have been told."""
        await self._idle.wait()

    def refusal(self, reason: str = "") -> RefusedError:
        """What an agent is told here: who leads, as far as this process knows."""
        leader = self._elector.leader
        if self._elector.role is Role.FROZEN:
            reason = reason or "frozen: this control plane is not sure of its lease"
            leader = None
        elif leader is None:
            reason = reason or "standby: no leader is known"
        elif leader.id == self._elector.identity:
            reason = reason or "this leader is still starting"
        else:
            reason = reason or f"standby: {leader.id} leads term {leader.term}"
        return RefusedError(
            RefusalKind.UNAVAILABLE,
            reason,
            leader_address=leader.facts.get("agent_address", "") if leader is not None else "",
            term=leader.term if leader is not None else self._elector.term,
        )

    # ---- terms ---------------------------------------------------------------------------------

    async def _one_term(self, leadership: Leadership) -> None:
        self._idle.clear()
        try:
            await self._start_and_lead(leadership)
        finally:
            self._idle.set()

    async def _start_and_lead(self, leadership: Leadership) -> None:
        term = self._make_term(leadership, self._raise_term)
        try:
            async with asyncio.timeout(START_UP_S):
                await self._start(term)
        except (TimeoutError, StoreError, StartUpError) as error:
            reason = f"cannot start term {leadership.term}: {str(error) or 'not in time'}"
            _log.error(reason)
            await self._elector.resign(reason)
            return
        self.term = term
        self._started.set()
        _log.info("leading", term=leadership.term, nodes=len(term.fleet.nodes))
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(term.run())
                await leadership.ended.wait()
                work.cancel()
        finally:
            self.term = None
            self._started.clear()
        await self._close_streams(term)

    async def _start(self, term: Term) -> None:
        await self._view.watcher.wait_synced()
        await term.start()
        if term.leadership.ended.is_set():
            raise StartUpError("the term was over before it began")

    async def _close_streams(self, term: Term) -> None:
        """Say goodbye with the new leader's address, if it shows up soon."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SUCCESSOR_WAIT_S):
                while not self._another_leads():
                    await self._elector.wait_change()
        term.sessions.close_all(self.refusal())

    def _another_leads(self) -> bool:
        leader = self._elector.leader
        return leader is not None and leader.id != self._elector.identity

    async def _term_for_streams(self) -> Term | None:
        """The term that takes streams now; one that is just starting is waited for."""
        if not self._elector.is_leader():
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_WAIT_S):
                await self._started.wait()
        return self.term if self._elector.is_leader() else None

    async def _follow_roles(self) -> None:
        while True:
            await self._elector.wait_change()
            self._wake()

    def _wake(self) -> None:
        if self.term is not None:
            self.term.wake()

    # ---- an agent knows a higher term ----------------------------------------------------------

    def _raise_term(self, above: int) -> None:
        self._raise_above = max(above, self._raise_above or 0)
        self._raise_asked.set()

    async def _raise_when_asked(self) -> None:
        while True:
            await self._raise_asked.wait()
            self._raise_asked.clear()
            above, self._raise_above = self._raise_above, None
            if above is not None:
                await self._raise(above)

    async def _raise(self, above: int) -> None:
        """Lift this leader's term, and announce it anew by closing the streams."""
        try:
            raised = await self._elector.raise_term(above)
        except RejectedError as error:
            _log.error("an agent has accepted a term far too high", term=above, reason=str(error))
            return
        except StoreError as error:
            _log.warning("cannot raise the term yet", above=above, reason=str(error))
            return
        _log.warning("term raised above what an agent has accepted", above=above, term=raised)
        if self.term is not None:
            self.term.sessions.close_all(self.refusal(f"this leader's term is {raised} now"))
