"""What the leader knows of nodes and shards, folded from what agents say.

Decides: which message changes what. A heartbeat changes only what it carries; a shard's status
counts only from the node that holds the shard; a registration's inventory is a cut, so a shard
commanded before it and missing from it is gone. Guarantees: values inside are immutable, `fold`
is the only way in, and replica state lives here and nowhere else: it is never stored, it is
reported. Does not decide what should run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmgw.control.core import backoff, facts
from llmgw.control.core.values import Intent, Node, NodeState, Shard
from llmgw.domain.shard import ShardState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from llmgw.control.core.backoff import FailureKey, Failures
    from llmgw.control.core.events import Event
    from llmgw.control.core.values import ShardKey
    from llmgw.domain.messages import CommandResult, Register, ShardStatus
    from llmgw.domain.shard import ShardReport


class Fleet:
    """Nodes, shards and failures. `fold` takes one event and returns notes for the log."""

    def __init__(self, started_at_s: float) -> None:
        self._started_at_s = started_at_s
        self._nodes: dict[str, Node] = {}
        self._shards: dict[ShardKey, Shard] = {}
        self._failures: dict[FailureKey, Failures] = {}
        self._port_cursors: dict[str, int] = {}

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes of the roster, by id."""
        return self._nodes

    @property
    def shards(self) -> Mapping[ShardKey, Shard]:
        """All shards known, failed ones that are remembered included."""
        return self._shards

    @property
    def failures(self) -> Mapping[FailureKey, Failures]:
        """What failed lately, by (model, spec hash, node)."""
        return self._failures

    @property
    def port_cursors(self) -> Mapping[str, int]:
        """The port booked last on each address, so that the next booking goes on from there."""
        return self._port_cursors

    def copy(self) -> Fleet:
        """An independent fleet with the same content."""
        other = Fleet(self._started_at_s)
        other._nodes.update(self._nodes)
        other._shards.update(self._shards)
        other._failures.update(self._failures)
        other._port_cursors.update(self._port_cursors)
        return other

    def fold(self, event: Event, now_s: float) -> list[str]:
        """Take in one event; what was refused or is worth a line comes back as text."""
        return event.apply(self, now_s)

    # ---- what events do; called by `llmgw.control.core.events` only ---------------------------

    def know(self, node_id: str) -> None:
        """A node stands on the roster."""
        self._nodes.setdefault(node_id, Node(node_id, timer_from_s=self._started_at_s))

    def register(self, registration: int, message: Register, now_s: float) -> list[str]:
        """Take a registration: facts, and the inventory as a cut."""
        node_id = message.node_id
        self.know(node_id)
        known = self._nodes[node_id]
        again = known.connected and known.registration == registration
        self._nodes[node_id] = replace(
            known,
            facts=facts.merge(known.facts, message.facts),
            connected=True,
            registered=True,
            open=known.open and again,
            registration=registration,
            heard_at_s=now_s,
            timer_from_s=now_s,
            state=NodeState.READY if known.open and again else NodeState.REGISTERING,
            quarantined=message.quarantined,
        )
        reported = {report.spec.shard_id for report in message.shards}
        notes = []
        for shard in list(self.shards_of(node_id)):
            in_flight = shard.report is None and again and shard.registration == registration
            if shard.spec.shard_id in reported or in_flight or shard.cleaned:
                continue
            del self._shards[shard.key]
            notes.append(f"shard {shard.spec.shard_id} is gone: {node_id} does not report it")
        for report in message.shards:
            self._take_report(node_id, report, now_s)
            if not again:
                self._forget_command((node_id, report.spec.shard_id))
        return notes

    def open_node(self, node_id: str, registration: int) -> None:
        """The node's shards are adopted; something may be placed on it."""
        node = self._nodes.get(node_id)
        if node is not None and node.connected and node.registration == registration:
            self._nodes[node_id] = replace(node, open=True, state=NodeState.READY)

    def update_node(self, node: Node) -> None:
        """Replace one node's value."""
        self._nodes[node.node_id] = node

    def take_status(self, node_id: str, status: ShardStatus, now_s: float) -> list[str]:
        """Take one shard's state from the node that holds it."""
        report = status.shard
        key = (node_id, report.spec.shard_id)
        if key not in self._shards:
            holder = self.holder_of(report.spec.shard_id)
            if holder is not None:
                shard_id = report.spec.shard_id
                return [f"refused: {node_id} reports on {shard_id}, which is placed on {holder}"]
            if report.state.is_over:
                return []
        self._take_report(node_id, report, now_s)
        if status.fetch is not None and key in self._shards:
            self._shards[key] = replace(self._shards[key], fetch=status.fetch)
        return []

    def take_result(self, node_id: str, result: CommandResult, now_s: float) -> list[str]:
        """Take the answer to a command about a shard."""
        shard = next(
            (s for s in self.shards_of(node_id) if s.message_id == result.message_id), None
        )
        if shard is None or result.stale_term:
            return []
        if result.accepted:
            if shard.intent is Intent.STOP and shard.state is ShardState.FAILED:
                self._shards[shard.key] = replace(shard, cleaned=True)
            return []
        if shard.intent is Intent.RUN and shard.report is None:
            failed = replace(
                shard, state=ShardState.FAILED, reason=f"{node_id} refused it: {result.reason}"
            )
            self._shards[shard.key] = failed
            self._record_failure(shard, failed.reason, now_s)
        return [f"{node_id} refused a command about {shard.spec.shard_id}: {result.reason}"]

    def command(self, shard: Shard) -> None:
        """A start was queued: the shard is booked until its node reports it."""
        self._shards[shard.key] = shard
        address = facts.address_of(self._nodes[shard.node_id].facts, shard.node_id)
        self._port_cursors[address] = shard.spec.http_port

    def update_shard(self, shard: Shard) -> None:
        """Replace one shard's value."""
        self._shards[shard.key] = shard

    def forget(self, key: ShardKey) -> None:
        """Drop what is remembered of a shard."""
        self._shards.pop(key, None)

    def prune_failures(self, now_s: float) -> None:
        """Drop failures that are too old to matter."""
        for key, failures in list(self._failures.items()):
            if backoff.is_forgotten(failures, now_s):
                del self._failures[key]

    # ---- reading --------------------------------------------------------------------------------

    def shards_of(self, node_id: str) -> Iterator[Shard]:
        """The shards of one node."""
        return (shard for key, shard in self._shards.items() if key[0] == node_id)

    def holder_of(self, shard_id: str) -> str | None:
        """The node that a shard is placed on."""
        return next((node for node, shard in self._shards if shard == shard_id), None)

    def is_lost(self, node_id: str) -> bool:
        """Whether the node was silent for so long that its replicas are replaced."""
        node = self._nodes.get(node_id)
        return node is not None and node.state is NodeState.LOST

    # ---- inside ---------------------------------------------------------------------------------

    def _take_report(self, node_id: str, report: ShardReport, now_s: float) -> None:
        key = (node_id, report.spec.shard_id)
        known = self._shards.get(key)
        if report.state is ShardState.STOPPED:
            if known is not None and known.state is ShardState.FAILED:
                self._shards[key] = replace(known, cleaned=True)
            else:
                self._shards.pop(key, None)
            return
        if known is None:
            registration = self._nodes[node_id].registration if node_id in self._nodes else 0
            known = Shard(node_id, report.spec, ShardState.PENDING, now_s, registration)
        shard = replace(
            known,
            spec=report.spec,
            state=report.state,
            report=report,
            reason=report.reason,
            ready_since_s=_ready_since_s(known, report, now_s),
            cleaned=known.cleaned and report.state is ShardState.FAILED,
        )
        self._shards[key] = shard
        if report.state is ShardState.FAILED and known.state is not ShardState.FAILED:
            if known.intent is Intent.RUN:
                self._record_failure(known, report.reason, now_s)
            else:
                self._shards[key] = replace(shard, intent=Intent.RETIRE)

    def _record_failure(self, shard: Shard, reason: str, now_s: float) -> None:
        key = (shard.spec.model, shard.spec.spec_hash, shard.node_id)
        ready_for_s = 0.0 if shard.ready_since_s is None else now_s - shard.ready_since_s
        self._failures[key] = backoff.after_failure(
            self._failures.get(key), reason=reason, ready_for_s=ready_for_s, now_s=now_s
        )

    def _forget_command(self, key: ShardKey) -> None:
        """A command sent on an older stream may not have arrived: let it be sent again."""
        shard = self._shards.get(key)
        if shard is not None and shard.intent in (Intent.DRAIN, Intent.STOP):
            back_to = Intent.RUN if shard.state is ShardState.FAILED else Intent.RETIRE
            self._shards[key] = replace(shard, intent=back_to, message_id="")


def _ready_since_s(known: Shard, report: ShardReport, now_s: float) -> float | None:
    if report.state is not ShardState.READY:
        return known.ready_since_s if report.state.is_over else None
    reported_s = now_s - report.ready_for_s
    return reported_s if known.ready_since_s is None else min(known.ready_since_s, reported_s)
