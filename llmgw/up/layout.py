"""Where every part of one `up` listens: addresses and ports, decided before anything starts.

All control planes use the same ports, each on a loopback address of its own, as they do on several
machines. Each node has a loopback address of its own too, so that engine ports, which are booked
per node, cannot collide; a system with its own port base has its own node addresses, so that two
systems on one machine cannot collide either. Pure: what is free is looked at elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmgw.up.errors import InputError

CONTROL_PLANES_MAX = 9
AGENTS_MAX = 50
ETCD_MEMBERS_MAX = 7
PORT_BASE_MIN = 1024
PORT_MAX = 65_535
ROUTER_PORT = 8080
ADMIN_PORT = 8081
AGENT_PORT = 8443
ETCD_PORT = 12_379
LOOPBACK = "127.0.0.1"
NODE_NETWORK = "127.0.1"


@dataclass(frozen=True, slots=True)
class Listener:
    """One address a part will listen on, and whose it is."""

    host: str
    port: int
    what: str


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """One control plane: `admin` and `agent_address` are host:port."""

    id: str
    admin: str
    agent_address: str


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its engines bind to `address`."""

    node_id: str
    address: str


@dataclass(frozen=True, slots=True)
class EtcdMember:
    """One etcd member, on loopback."""

    name: str
    client_port: int
    peer_port: int

    @property
    def endpoint(self) -> str:
        """Where clients reach it, as host:port."""
        return f"{LOOPBACK}:{self.client_port}"


@dataclass(frozen=True, slots=True)
class Layout:
    """All parts of one system."""

    router_port: int
    admin_port: int
    agent_port: int
    control_planes: tuple[ControlPlane, ...]
    nodes: tuple[Node, ...]
    etcd: tuple[EtcdMember, ...]

    @property
    def router(self) -> str:
        """The router's address as a URL."""
        return f"http://{LOOPBACK}:{self.router_port}"

    @property
    def admins(self) -> tuple[str, ...]:
        """The admin addresses as URLs."""
        return tuple(f"http://{plane.admin}" for plane in self.control_planes)

    def listeners(self) -> tuple[Listener, ...]:
        """Every address that must be free before the start."""
        found = [Listener(LOOPBACK, self.router_port, "router")]
        for plane in self.control_planes:
            host = plane.admin.rpartition(":")[0]
            found.append(Listener(host, self.admin_port, f"admin of {plane.id}"))
            found.append(Listener(host, self.agent_port, f"agent stream of {plane.id}"))
        for member in self.etcd:
            found.append(Listener(LOOPBACK, member.client_port, f"{member.name} clients"))
            found.append(Listener(LOOPBACK, member.peer_port, f"{member.name} peers"))
        return tuple(found)


def plan(
    *,
    control_planes: int,
    agents: int,
    etcd_members: int,
    port_base: int | None = None,
    node_network: str | None = None,
) -> Layout:
    """Lay out a system.

    Args:
        control_planes: how many, 1 to 9.
        agents: how many, 1 to 50.
        etcd_members: how many, 1 to 7.
        port_base: the first of a run of ports; None for the well-known ones.
        node_network: three bytes of the nodes' addresses, when engines of an earlier run may
            still answer there; None for those that belong to the port base.

    Raises:
        InputError: a number is out of range.
    """
    _check_range("--control-planes", control_planes, 1, CONTROL_PLANES_MAX)
    _check_range("--agents", agents, 1, AGENTS_MAX)
    _check_range("--etcd-members", etcd_members, 1, ETCD_MEMBERS_MAX)
    if port_base is None:
        router, admin, agent, etcd = ROUTER_PORT, ADMIN_PORT, AGENT_PORT, ETCD_PORT
    else:
        router, admin, agent, etcd = (port_base + offset for offset in range(4))
        _check_range("--port-base", port_base, PORT_BASE_MIN, PORT_MAX - 2 * etcd_members - 2)
    network = node_network or network_of(port_base)
    return Layout(
        router_port=router,
        admin_port=admin,
        agent_port=agent,
        control_planes=tuple(
            ControlPlane(f"cp-{n}", f"127.0.0.{n}:{admin}", f"127.0.0.{n}:{agent}")
            for n in range(1, control_planes + 1)
        ),
        nodes=tuple(Node(f"node-{n}", f"{network}.{n}") for n in range(1, agents + 1)),
        etcd=tuple(
            EtcdMember(f"etcd-{n + 1}", etcd + 2 * n, etcd + 2 * n + 1) for n in range(etcd_members)
        ),
    )


def network_of(port_base: int | None) -> str:
    """The node network of a port base: 127.0.1, or one that no other port base has."""
    if port_base is None:
        return NODE_NETWORK
    return f"127.{port_base >> 8}.{port_base & 255}"


def _check_range(flag: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InputError(f"{flag} {value}: expected {low} to {high}")
