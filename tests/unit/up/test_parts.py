"""The command lines of the parts agree with each other and with the programs' own flags."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from llmgw import cli
from llmgw.up import parts
from llmgw.up.layout import plan

LAYOUT = plan(control_planes=3, agents=2, etcd_members=3, port_base=9000)
STATE = Path("/state")


def values(argv: tuple[str, ...], flag: str) -> list[str]:
    return [argv[index + 1] for index, word in enumerate(argv) if word == flag]


def every_part() -> list[parts.Part]:
    journals = STATE / "journals"
    return [
        *(parts.control_part(plane, LAYOUT, journals) for plane in LAYOUT.control_planes),
        *(parts.agent_part(node, LAYOUT, STATE, journals) for node in LAYOUT.nodes),
        parts.router_part(LAYOUT, STATE, journals),
    ]


def test_agents_dial_where_control_planes_listen() -> None:
    listening = [
        value
        for plane in LAYOUT.control_planes
        for value in values(parts.control_part(plane, LAYOUT, None).argv, "--agent-listen")
    ]
    for node in LAYOUT.nodes:
        assert values(parts.agent_part(node, LAYOUT, STATE, None).argv, "--control") == listening


def test_control_planes_and_router_know_every_etcd_member() -> None:
    endpoints = [member.endpoint for member in LAYOUT.etcd]
    assert values(parts.router_part(LAYOUT, STATE, None).argv, "--etcd") == endpoints
    for plane in LAYOUT.control_planes:
        assert values(parts.control_part(plane, LAYOUT, None).argv, "--etcd") == endpoints


def test_etcd_members_know_each_other() -> None:
    argvs = [parts.etcd_part("etcd", member, LAYOUT, STATE).argv for member in LAYOUT.etcd]
    (cluster,) = {values(argv, "--initial-cluster")[0] for argv in argvs}
    peers = [
        f"{values(argv, '--name')[0]}={values(argv, '--listen-peer-urls')[0]}" for argv in argvs
    ]
    assert cluster.split(",") == peers
    assert len({values(argv, "--data-dir")[0] for argv in argvs}) == 3


def test_every_part_has_a_name_a_state_and_a_journal_of_its_own() -> None:
    made = every_part()
    assert len({part.name for part in made}) == len(made)
    journals = [values(part.argv, "--journal")[0] for part in made]
    assert journals == [f"/state/journals/{part.name}.jsonl" for part in made]
    states = [value for part in made for value in values(part.argv, "--state-dir")]
    assert states == ["/state/node-1", "/state/node-2", "/state/router"]


def test_without_journals_none_is_asked_for() -> None:
    assert "--journal" not in parts.router_part(LAYOUT, STATE, None).argv


def known_flags(program: str) -> set[str]:
    command = typer.main.get_command(cli.build_app(program)).commands[program]  # type: ignore[attr-defined]
    return {flag for parameter in command.params for flag in parameter.opts}


@pytest.mark.parametrize("part", every_part(), ids=lambda part: str(part.name))
def test_the_programs_know_the_flags_that_they_are_given(part: parts.Part) -> None:
    program = part.argv[3]
    given = {word for word in part.argv[4:] if word.startswith("--")}
    assert given <= known_flags(program)


def test_the_agent_knows_the_flags_that_stop_its_engines() -> None:
    argv = parts.stop_engines_argv(LAYOUT.nodes[0], STATE)
    assert {word for word in argv[4:] if word.startswith("--")} <= known_flags("agent")
    assert values(argv, "--state-dir") == values(
        parts.agent_part(LAYOUT.nodes[0], LAYOUT, STATE, None).argv, "--state-dir"
    )


def test_the_environment_keeps_what_is_the_operators_and_drops_what_contradicts() -> None:
    own = {
        "PATH": "/bin",
        "LLMGW_LEASE_TTL_S": "3",
        "LLMGW_TLS_CA": "/ca.pem",
        "LLMGW_ETCD": "elsewhere:2379",
        "LLMGW_ADMIN_LISTEN": "0.0.0.0:1",
        "ETCD_DATA_DIR": "/elsewhere",
    }
    assert parts.environment(own, STATE) == {
        "PATH": "/bin",
        "LLMGW_LEASE_TTL_S": "3",
        parts.MARKER: "/state",
    }


def test_agents_hand_the_marker_on_to_engines() -> None:
    """They pass on what is not theirs: names that begin with LLMGW_ are."""
    assert not parts.MARKER.startswith("LLMGW_")
