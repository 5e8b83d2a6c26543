"""Two stages of silence: suspect, then lost, counted only under the present leader.

Guarantees: a node leaves ready or unknown only after a full period of silence under this leader
(timers restart on take-over and thaw), and when many nodes fall silent together none of them is
declared lost: then it is more likely that the leader is cut off. A closed stream decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llmgw.control.core.values import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from llmgw.control.core.values import Node


@dataclass(frozen=True, slots=True)
class Limits:
    """When silence means what. Shares are of all nodes of the roster."""

    suspect_after_s: float = 15.0
    lost_after_s: float = 90.0
    silent_share_max: float = 0.3
    silent_count_max: int = 2


def heard(node: Node, now_s: float) -> Node:
    """The node after any message from it."""
    return replace(node, heard_at_s=now_s, timer_from_s=now_s, state=_speaking(node))


def expire(nodes: Iterable[Node], now_s: float, limits: Limits) -> Mapping[str, NodeState]:
    """The state of every node now."""
    listed = list(nodes)
    held_back = self_suspicion(listed, now_s, limits) != ""
    return {node.node_id: _state(node, now_s, limits, held_back=held_back) for node in listed}


def self_suspicion(nodes: Iterable[Node], now_s: float, limits: Limits) -> str:
    """Why the leader suspects itself rather than its nodes; empty if it does not.

    Nodes that were declared lost one by one do not count: they did not fall silent together.
    """
    listed = list(nodes)
    silent = sum(
        1
        for n in listed
        if n.state is not NodeState.LOST and now_s - n.timer_from_s >= limits.suspect_after_s
    )
    if silent > limits.silent_count_max and silent > limits.silent_share_max * len(listed):
        return (
            f"{silent} of {len(listed)} nodes fell silent together: this leader suspects itself, "
            "and replaces nothing until they return"
        )
    return ""


def _state(node: Node, now_s: float, limits: Limits, *, held_back: bool) -> NodeState:
    if node.state is NodeState.LOST:
        return NodeState.LOST
    silent_s = now_s - node.timer_from_s
    if silent_s >= limits.lost_after_s and not held_back:
        return NodeState.LOST
    if silent_s >= limits.suspect_after_s:
        return NodeState.SUSPECT
    return _speaking(node)


def _speaking(node: Node) -> NodeState:
    if not node.registered:
        return NodeState.UNKNOWN
    return NodeState.REGISTERING if node.connected and not node.open else NodeState.READY
