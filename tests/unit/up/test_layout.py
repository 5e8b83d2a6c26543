"""Where parts listen: no two on one address, and the ports that the documentation names."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.up.errors import InputError
from llmgw.up.layout import (
    AGENTS_MAX,
    CONTROL_PLANES_MAX,
    ETCD_MEMBERS_MAX,
    PORT_BASE_MIN,
    PORT_MAX,
    network_of,
    plan,
)


def test_the_well_known_ports() -> None:
    layout = plan(control_planes=3, agents=2, etcd_members=1)
    assert layout.router == "http://127.0.0.1:8080"
    assert layout.admins == (
        "http://127.0.0.1:8081",
        "http://127.0.0.2:8081",
        "http://127.0.0.3:8081",
    )
    assert [plane.agent_address for plane in layout.control_planes] == [
        "127.0.0.1:8443",
        "127.0.0.2:8443",
        "127.0.0.3:8443",
    ]
    assert [node.address for node in layout.nodes] == ["127.0.1.1", "127.0.1.2"]
    assert [member.endpoint for member in layout.etcd] == ["127.0.0.1:12379"]


def test_a_port_base_moves_everything() -> None:
    layout = plan(control_planes=1, agents=1, etcd_members=3, port_base=9000)
    assert (layout.router_port, layout.admin_port, layout.agent_port) == (9000, 9001, 9002)
    assert [(m.client_port, m.peer_port) for m in layout.etcd] == [
        (9003, 9004),
        (9005, 9006),
        (9007, 9008),
    ]


@given(
    st.integers(1, CONTROL_PLANES_MAX),
    st.integers(1, AGENTS_MAX),
    st.integers(1, ETCD_MEMBERS_MAX),
    st.none() | st.integers(PORT_BASE_MIN, PORT_MAX - 2 * ETCD_MEMBERS_MAX - 2),
)
def test_no_two_parts_share_an_address(
    control_planes: int, agents: int, etcd_members: int, port_base: int | None
) -> None:
    layout = plan(
        control_planes=control_planes,
        agents=agents,
        etcd_members=etcd_members,
        port_base=port_base,
    )
    listeners = [(listener.host, listener.port) for listener in layout.listeners()]
    assert len(listeners) == len(set(listeners)) == 1 + 2 * control_planes + 2 * etcd_members
    assert all(0 < port <= PORT_MAX for _, port in listeners)
    addresses = {node.address for node in layout.nodes}
    assert len(addresses) == agents
    assert all(ipaddress.ip_address(address).is_loopback for address in addresses)
    assert not addresses & {host for host, _ in listeners}


@given(st.integers(PORT_BASE_MIN, PORT_MAX), st.integers(PORT_BASE_MIN, PORT_MAX))
def test_systems_with_different_port_bases_have_different_nodes(one: int, two: int) -> None:
    """Engine ports are booked per node: two systems would book the same ones."""
    assert (network_of(one) == network_of(two)) == (one == two)
    assert network_of(one) != network_of(None)


def test_nodes_keep_the_addresses_of_an_earlier_run() -> None:
    layout = plan(
        control_planes=1, agents=1, etcd_members=1, port_base=9000, node_network="127.9.9"
    )
    assert layout.nodes[0].address == "127.9.9.1"


@pytest.mark.parametrize(
    ("wrong", "flag"),
    [
        ({"control_planes": 0}, "--control-planes 0"),
        ({"agents": 0}, "--agents 0"),
        ({"agents": AGENTS_MAX + 1}, "--agents 51"),
        ({"etcd_members": 0}, "--etcd-members 0"),
        ({"port_base": 80}, "--port-base 80"),
        ({"port_base": PORT_MAX}, "--port-base 65535"),
    ],
)
def test_a_number_out_of_range_names_its_flag(wrong: dict[str, int], flag: str) -> None:
    numbers: dict[str, Any] = {"control_planes": 1, "agents": 1, "etcd_members": 1, **wrong}
    with pytest.raises(InputError, match=flag):
        plan(**numbers)
