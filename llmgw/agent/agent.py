"""The agent of one node: adopt, find the leader, serve it, and again.

Engines are the supervisor's and live on whatever happens to sessions, leaders or this process.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from ha.clock import BootClock
from llmgw.agent.core.dialling import backoff_s
from llmgw.agent.discovery import Discovery
from llmgw.agent.load import LoadSampler
from llmgw.agent.records import Records
from llmgw.agent.search import Search
from llmgw.agent.session import Session
from llmgw.agent.supervisor import Supervisor
from llmgw.agent.terms import Terms
from llmgw.kit.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from llmgw.agent.engines.base import Engine
    from llmgw.agent.search import ControlName, Found
    from llmgw.agent.shard import Limits
    from llmgw.kit.journal import Journal
    from llmgw.wire.link import Dialer

# A session that held so long was a real one: the next search starts without a pause.
STEADY_S = 5.0

_log = get_logger(__name__)


class Agent:
    """Everything one agent is made of.

    Raises:
        StateDirError: what is in `state_dir` cannot be used.
    """

    def __init__(
        self,
        *,
        node_id: str,
        address: str,
        pool: str,
        labels: Mapping[str, str],
        state_dir: Path,
        controls: Sequence[ControlName],
        dialer: Dialer,
        engines: Mapping[str, Engine],
        limits: Limits,
        journal: Journal,
    ) -> None:
        self._node_id = node_id
        self._address = address
        self._engines = engines
        self._limits = limits
        self._journal = journal
        self._clock = BootClock()
        self._random = random.SystemRandom()
        self._terms = Terms(state_dir / "term", journal)
        self._records = Records(state_dir)
        self._load = LoadSampler(self._clock)
        self._search = Search(controls, dialer, self._random)
        self._discovery = Discovery(
            address=address, pool=pool, labels=labels, state_dir=state_dir, engines=engines
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve leaders until `stop` is set; engines run on."""
        async with asyncio.TaskGroup() as group:
            supervisor = self._supervisor(group)
            await supervisor.adopt()
            serving = group.create_task(self._serve(supervisor, stop))
            await stop.wait()
            serving.cancel()
            supervisor.release()
        self._records.close()

    async def stop_engines(self, reason: str) -> int:
        """Stop everything this state directory holds; returns how many shards there were."""
        async with asyncio.TaskGroup() as group:
            supervisor = self._supervisor(group)
            await supervisor.adopt()
            count = len(supervisor.inventory()) + len(supervisor.quarantined())
            supervisor.stop_all(reason)
        self._records.close()
        return count

    def _supervisor(self, group: asyncio.TaskGroup) -> Supervisor:
        return Supervisor(
            group,
            node_id=self._node_id,
            address=self._address,
            engines=self._engines,
            records=self._records,
            clock=self._clock,
            journal=self._journal,
            limits=self._limits,
        )

    async def _serve(self, supervisor: Supervisor, stop: asyncio.Event) -> None:
        """Until cancelled; `stop` is looked at too.

        A task group that is cancelled while a task of it fails tells of the failure only, so a
        session that ends just then would swallow the cancellation.
        """
        attempt = 0
        while not stop.is_set():
            found = await self._search.find(self._terms.highest)
            began_s = self._clock.now_s()
            reason = await self._attach(found, supervisor)
            _log.warning("detached", reason=reason, address=found.target.address)
            self._journal.write("detached", reason=reason)
            attempt = 0 if self._clock.now_s() - began_s > STEADY_S else attempt + 1
            if attempt and not stop.is_set():
                await asyncio.sleep(backoff_s(attempt, self._random.random()))

    async def _attach(self, found: Found, supervisor: Supervisor) -> str:
        session = Session(
            found,
            node_id=self._node_id,
            discovery=self._discovery,
            supervisor=supervisor,
            load=self._load,
            terms=self._terms,
            clock=self._clock,
            journal=self._journal,
        )
        # A task of its own: what its task group does to cancellation stays in there.
        return await asyncio.create_task(session.run())
