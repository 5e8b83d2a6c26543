"""`ctl leader` and `ctl leader resign`: who leads, and asking it to hand over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from llmgw.ctl.catalog import operator
from llmgw.ctl.errors import UnreachableError
from llmgw.ctl.output import Output, print_data, print_table

if TYPE_CHECKING:
    from llmgw.ctl.client import AdminClient


def show_leader(client: AdminClient, output: Output) -> None:
    """Who leads, its term and its addresses.

    Raises:
        UnreachableError: nobody leads.
    """
    leader = client.get("/v1/status").get("leader")
    if leader is None:
        raise UnreachableError("no control plane leads at the moment")
    if output is not Output.TABLE:
        print_data(leader, output)
        return
    row = (leader["id"], leader["term"], leader["admin_address"], leader["agent_address"])
    print_table(("LEADER", "TERM", "ADMIN", "AGENTS DIAL"), [row], "")


def resign_leader(client: AdminClient, reason: str, output: Output) -> None:
    """Ask the leader to finish what it owes and hand over to a standby."""
    why = reason or f"asked by {operator()}"
    result = client.post("/v1/leader/resign", {"reason": why})
    if output is not Output.TABLE:
        print_data(result, output)
    else:
        typer.echo(f"{result['id']} gave up the leadership of term {result['term']}")
