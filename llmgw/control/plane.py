"""One control plane, assembled: election, catalog, leadership, and what it can tell about itself.

Knows no port and no etcd: a store and a clock are handed in, so that tests and a simulator run
this very code.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ha.elector import ElectionKeys, Elector, Role
from ha.watcher import Watcher
from llmgw.control import views
from llmgw.control.catalog import CatalogView, CatalogWriter
from llmgw.control.leader import Leader
from llmgw.control.term import WRITE_TIMEOUT_S, Term
from llmgw.wire.keys import Keys

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from ha.clock import Clock
    from ha.elector import LeaderInfo, Leadership, Timing, Transition
    from ha.store import Store
    from llmgw.control.term import TermSettings
    from llmgw.kit.journal import Journal

STALE_AFTER_S = 10.0
"""A view of the store older than this is a problem worth telling."""


class ControlPlane:
    """Everything of one control plane but its listeners."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        cluster: str,
        settings: TermSettings,
        agent_address: str,
        admin_address: str,
        timing: Timing,
        random: random.Random,
        journal: Journal,
    ) -> None:
        self.cluster = cluster
        self.id = settings.control_plane_id
        self.keys = Keys(cluster)
        self.agent_address = agent_address
        self.admin_address = admin_address
        self.warnings: list[str] = []
        self._store = store
        self._clock = clock
        self._settings = settings
        self._journal = journal
        self.view = CatalogView(store, self.keys, clock)
        self.candidates = Watcher(
            store, self.keys.candidates, clock, on_change=lambda _watcher: None
        )
        self.elector = Elector(
            store,
            clock,
            keys=ElectionKeys(self.keys.leader, self.keys.term, self.keys.candidates),
            identity=self.id,
            facts={"agent_address": agent_address, "admin_address": admin_address},
            timing=timing,
            random=random,
            on_transition=self._record_role,
        )
        self.leader = Leader(self.elector, self.view, self._make_term)

    async def run(self) -> None:
        """Take part until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.elector.run())
            group.create_task(self.view.watcher.run())
            group.create_task(self.candidates.run())
            group.create_task(self.leader.run())

    def catalog_writer(self) -> CatalogWriter | None:
        """For changes of the catalog; None unless this control plane leads now."""
        term = self.leader.term
        if term is None or not term.leadership.is_leader():
            return None
        return CatalogWriter(
            self._store, self.keys, self.view, term.writer, timeout_s=WRITE_TIMEOUT_S
        )

    def status(self) -> dict[str, Any]:
        """What `GET /v1/status` says, as far as this process knows it."""
        leader = self.elector.leader
        catalog = self.view.catalog
        return {
            "cluster": self.cluster,
            "id": self.id,
            "role": str(self.elector.role),
            "term": self.elector.term,
            "leader": leader_view(leader),
            "control_planes": self._control_planes(leader),
            "settling": None,
            "catalog_revision": catalog.revision if catalog is not None else 0,
            "problems": self.problems(),
            "agents": None,
            "models": None,
            "replicas": None,
        } | (self.fleet_view() or {})

    def fleet_view(self) -> dict[str, Any] | None:
        """What only the leader knows; None when this process does not lead."""
        term = self.leader.term
        if term is None:
            return None
        held = dict(term.publisher.held)
        return {
            "settling": not term.settling.done,
            "agents": views.node_views(term.fleet, self._clock.now_s()),
            "models": views.model_views(term.fleet, self.view.catalog, dict(term.plan.reasons)),
            "replicas": views.replica_views(term.fleet, held),
        }

    def problems(self) -> list[str]:
        """What an operator should look at, in sentences."""
        found = list(self.warnings)
        if self.elector.problem:
            found.append(f"etcd: {self.elector.problem}")
        if self.elector.obstacle:
            found.append(f"election: {self.elector.obstacle}")
        if self.view.problem:
            found.append(self.view.problem)
        if not self.view.watcher.synced:
            found.append("etcd: the catalog could not be read yet")
        elif self.view.watcher.staleness_s() > STALE_AFTER_S:
            age_s = self.view.watcher.staleness_s()
            found.append(f"etcd: this view of the catalog is {age_s:.0f} s old")
        if self.elector.role is Role.FROZEN:
            found.append("frozen: the lease could not be renewed in time")
        if self.leader.term is not None and self.leader.term.suspicion:
            found.append(self.leader.term.suspicion)
        return found

    def _control_planes(self, leader: LeaderInfo | None) -> list[dict[str, Any]]:
        known: dict[str, dict[str, str]] = {}
        for key, item in self.candidates.items.items():
            identity = unquote(key.removeprefix(self.keys.candidates))
            known[identity] = _facts(item.value)
        if leader is not None:
            known.setdefault(leader.id, dict(leader.facts))
        known[self.id] = {
            "agent_address": self.agent_address,
            "admin_address": self.admin_address,
        }
        return [
            {
                "id": identity,
                "role": self._role_of(identity, leader),
                "agent_address": facts.get("agent_address", ""),
                "admin_address": facts.get("admin_address", ""),
            }
            for identity, facts in sorted(known.items())
        ]

    def _role_of(self, identity: str, leader: LeaderInfo | None) -> str:
        if identity == self.id:
            return str(self.elector.role)
        leads = leader is not None and leader.id == identity
        return str(Role.LEADING if leads else Role.STANDBY)

    def _make_term(self, leadership: Leadership, on_higher_term: Callable[[int], None]) -> Term:
        return Term(
            leadership,
            store=self._store,
            keys=self.keys,
            clock=self._clock,
            view=self.view,
            settings=self._settings,
            journal=self._journal,
            on_higher_term=on_higher_term,
        )

    def _record_role(self, transition: Transition) -> None:
        self._journal.write(
            "role", role=str(transition.new), term=transition.term, reason=transition.reason
        )


def leader_view(leader: LeaderInfo | None) -> dict[str, Any] | None:
    """A leader as JSON."""
    if leader is None:
        return None
    return {
        "id": leader.id,
        "term": leader.term,
        "agent_address": leader.facts.get("agent_address", ""),
        "admin_address": leader.facts.get("admin_address", ""),
    }


def _facts(value: bytes) -> dict[str, str]:
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    return {key: text for key, text in document.items() if isinstance(text, str)}
