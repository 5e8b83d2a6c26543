"""What can happen to a fleet. Each event knows what it changes; `Fleet.fold` is the entry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from llmgw.control.core import expiry, facts

if TYPE_CHECKING:
    from llmgw.control.core.expiry import Limits
    from llmgw.control.core.fleet import Fleet
    from llmgw.domain.messages import AgentHeartbeat, CommandResult, Register, ShardStatus


class Event(Protocol):
    """One thing that happened."""

    def apply(self, fleet: Fleet, now_s: float) -> list[str]:
        """Change the fleet; return notes for the log."""
        ...


@dataclass(frozen=True, slots=True)
class NodeKnown:
    """A node stands on the roster, or an endpoint names it."""

    node_id: str

    def apply(self, fleet: Fleet, _now_s: float) -> list[str]:
        """Its silence counts from the start of the term."""
        fleet.know(self.node_id)
        return []


@dataclass(frozen=True, slots=True)
class Registered:
    """A node registered, on a new stream or again on the one it has."""

    registration: int
    message: Register

    def apply(self, fleet: Fleet, now_s: float) -> list[str]:
        """Take facts and inventory."""
        return fleet.register(self.registration, self.message, now_s)


@dataclass(frozen=True, slots=True)
class Opened:
    """A node's shards are adopted."""

    node_id: str
    registration: int

    def apply(self, fleet: Fleet, _now_s: float) -> list[str]:
        """Something may be placed on it."""
        fleet.open_node(self.node_id, self.registration)
        return []


@dataclass(frozen=True, slots=True)
class Heard:
    """A heartbeat came."""

    node_id: str
    heartbeat: AgentHeartbeat

    def apply(self, fleet: Fleet, now_s: float) -> list[str]:
        """Restart the timer, and change only what the heartbeat carries."""
        node = fleet.nodes.get(self.node_id)
        if node is None or node.facts is None:
            return []
        node = replace(
            expiry.heard(node, now_s), facts=facts.after_heartbeat(node.facts, self.heartbeat)
        )
        if self.heartbeat.load is not None:
            node = replace(node, load=self.heartbeat.load)
        fleet.update_node(node)
        return []


@dataclass(frozen=True, slots=True)
class StatusCame:
    """A shard's status came."""

    node_id: str
    status: ShardStatus

    def apply(self, fleet: Fleet, now_s: float) -> list[str]:
        """Counts only from the node that holds the shard."""
        _touch(fleet, self.node_id, now_s)
        return fleet.take_status(self.node_id, self.status, now_s)


@dataclass(frozen=True, slots=True)
class ResultCame:
    """The answer to a command came."""

    node_id: str
    result: CommandResult

    def apply(self, fleet: Fleet, now_s: float) -> list[str]:
        """A refused start is a failure with a reason."""
        _touch(fleet, self.node_id, now_s)
        return fleet.take_result(self.node_id, self.result, now_s)


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A stream ended. It does not make the node lost: time does."""

    node_id: str
    registration: int

    def apply(self, fleet: Fleet, _now_s: float) -> list[str]:
        """Nothing may be placed there until it registers again."""
        node = fleet.nodes.get(self.node_id)
        if node is not None and node.registration == self.registration:
            fleet.update_node(replace(node, connected=False, open=False))
        return []


@dataclass(frozen=True, slots=True)
class TimersRestarted:
    """This process did not hear anybody for a while (frozen, stalled): silence counts anew."""

    def apply(self, fleet: Fleet, now_s: float) -> list[str]:
        """Every node has a full period again; those already lost stay lost until heard."""
        for node in list(fleet.nodes.values()):
            fleet.update_node(replace(node, timer_from_s=now_s))
        return []


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed."""

    limits: Limits

    def apply(self, fleet: Fleet, now_s: float) -> list[str]:
        """Move nodes between ready, suspect and lost."""
        notes = []
        for node_id, state in expiry.expire(fleet.nodes.values(), now_s, self.limits).items():
            node = fleet.nodes[node_id]
            if node.state is not state:
                notes.append(f"node {node_id} is {state} (was {node.state})")
                fleet.update_node(replace(node, state=state))
        fleet.prune_failures(now_s)
        return notes


def _touch(fleet: Fleet, node_id: str, now_s: float) -> None:
    node = fleet.nodes.get(node_id)
    if node is not None:
        fleet.update_node(expiry.heard(node, now_s))
