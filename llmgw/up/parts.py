"""The parts of a system as processes: names, command lines, environment. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from llmgw.up.layout import ControlPlane, EtcdMember, Layout, Node

HEARTBEAT_INTERVAL_S = 1
# Carried by every process of a system, engines too (agents hand it on, as it is none of their own
# variables): how a system finds what is left of it.
MARKER = "UP_OF_LLMGW_STATE_DIR"
_PROGRAM = (sys.executable, "-m", "llmgw")
# Set for a program that was started by hand, these would contradict what `up` decides.
_NOT_INHERITED = (
    "ETCD_",
    "LLMGW_TLS",
    "LLMGW_ETCD",
    "LLMGW_ADMIN",
    "LLMGW_AGENT",
    "LLMGW_JOURNAL",
)


@dataclass(frozen=True, slots=True)
class Part:
    """One process. `grace_s`: how long it may take to stop before it is killed."""

    name: str
    what: str
    argv: tuple[str, ...]
    grace_s: float


def etcd_part(binary: str, member: EtcdMember, layout: Layout, state_dir: Path) -> Part:
    """One etcd member."""
    peer = f"http://127.0.0.1:{member.peer_port}"
    client = f"http://{member.endpoint}"
    cluster = ",".join(f"{m.name}=http://127.0.0.1:{m.peer_port}" for m in layout.etcd)
    argv = (
        *(binary, "--name", member.name, "--data-dir", str(state_dir / member.name)),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", cluster, "--initial-cluster-token", "llmgw-up"),
        *("--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1h"),
    )
    return Part(member.name, f"etcd ({member.name})", argv, grace_s=10)


def control_part(plane: ControlPlane, layout: Layout, journal: Path | None) -> Part:
    """One control plane."""
    argv = (
        *(*_PROGRAM, "control", "--id", plane.id, *_etcd_flags(layout)),
        *("--agent-listen", plane.agent_address, "--admin-listen", plane.admin),
        *("--heartbeat-interval-s", str(HEARTBEAT_INTERVAL_S), "--insecure"),
        *_journal_flags(journal, plane.id),
    )
    return Part(plane.id, f"control plane {plane.id}", argv, grace_s=15)


def agent_part(node: Node, layout: Layout, state_dir: Path, journal: Path | None) -> Part:
    """One node's agent. Its engines are its own: they outlive it."""
    dial = [part for plane in layout.control_planes for part in ("--control", plane.agent_address)]
    argv = (
        *(*_PROGRAM, "agent", "--node-id", node.node_id, *dial, "--insecure"),
        *("--address", node.address, "--state-dir", str(state_dir / node.node_id)),
        *_journal_flags(journal, node.node_id),
    )
    return Part(node.node_id, f"agent {node.node_id}", argv, grace_s=10)


def router_part(layout: Layout, state_dir: Path, journal: Path | None) -> Part:
    """The router."""
    argv = (
        *(*_PROGRAM, "router", "--id", "router-1", *_etcd_flags(layout)),
        *("--listen", f"127.0.0.1:{layout.router_port}", "--state-dir", str(state_dir / "router")),
        *_journal_flags(journal, "router"),
    )
    return Part("router", "the router", argv, grace_s=15)


def stop_engines_argv(node: Node, state_dir: Path) -> tuple[str, ...]:
    """The command that stops every engine of a node and waits until they are gone."""
    folder = str(state_dir / node.node_id)
    return (*_PROGRAM, "agent", "--node-id", node.node_id, "--stop-engines", "--state-dir", folder)


def environment(own: Mapping[str, str], state_dir: Path) -> dict[str, str]:
    """What every part gets: ours, without what would contradict the flags, and the marker."""
    kept = {name: value for name, value in own.items() if not name.startswith(_NOT_INHERITED)}
    return {**kept, MARKER: str(state_dir)}


def _etcd_flags(layout: Layout) -> list[str]:
    return [part for member in layout.etcd for part in ("--etcd", member.endpoint)]


def _journal_flags(journal: Path | None, name: str) -> tuple[str, ...]:
    return ("--journal", str(journal / f"{name}.jsonl")) if journal is not None else ()
