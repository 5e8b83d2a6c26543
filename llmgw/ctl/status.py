"""`ctl status`, `nodes`, `models`, `replicas`: what runs, as the control planes see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from llmgw.ctl.errors import UnreachableError
from llmgw.ctl.output import Output, gibibytes, print_data, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmgw.ctl.client import AdminClient

Row = dict[str, Any]


def show_status(client: AdminClient, output: Output) -> None:
    """Everything on one page.

    Raises:
        UnreachableError: no control plane answers, or none leads (after what is known is shown).
    """
    status = client.get("/v1/status")
    if output is Output.TABLE:
        _print_status(status)
    else:
        print_data(status, output)
    if status.get("leader") is None:
        raise UnreachableError("no control plane leads at the moment")


def show_nodes(client: AdminClient, output: Output) -> None:
    """The nodes of the roster and how they are."""
    _show_list(client, "nodes", output)


def show_models(client: AdminClient, output: Output) -> None:
    """The models in force: wanted, ready, and why not."""
    _show_list(client, "models", output)


def show_replicas(client: AdminClient, output: Output) -> None:
    """The replicas and where they run."""
    _show_list(client, "replicas", output)


def _show_list(client: AdminClient, kind: str, output: Output) -> None:
    answer = client.get(f"/v1/{kind}")
    # A router has a list of models too, for its own clients.
    if not isinstance(answer, dict) or not isinstance(answer.get(kind), list):
        raise UnreachableError(f"{client.base} does not speak the admin API of llmgw")
    if output is not Output.TABLE:
        print_data(answer, output)
    else:
        _print_list(kind, answer[kind])


def _print_list(kind: str, rows: Sequence[Row]) -> None:
    headers: tuple[str, ...]
    if kind == "nodes":
        headers = ("NODE", "STATE", "ADDRESS", "HEARD", "CPUS", "CPU%", "MEMORY", "SHARDS")
        print_table(headers, [_node_row(row) for row in rows], "no nodes")
        _print_problems(rows, "node_id")
    elif kind == "models":
        headers = ("MODEL", "ALIASES", "READY", "REASON")
        print_table(headers, [_model_row(row) for row in rows], "no models")
    else:
        headers = ("REPLICA", "MODEL", "STATE", "NODE", "PID", "ENDPOINT", "REASON")
        print_table(headers, [_replica_row(row) for row in rows], "no replicas")


def _node_row(node: Row) -> tuple[object, ...]:
    heard = node.get("last_heard_s")
    cpu = (node.get("load") or {}).get("cpu_percent")
    return (
        node["node_id"],
        node["state"] if node.get("connected") else f"{node['state']}, not connected",
        node.get("address"),
        f"{heard:.1f} s" if isinstance(heard, (int, float)) else None,
        node.get("cpus"),
        f"{cpu:.0f}" if isinstance(cpu, (int, float)) else None,
        gibibytes(node.get("memory_total_bytes")),
        node.get("shards"),
    )


def _print_problems(nodes: Sequence[Row], name: str) -> None:
    for node in nodes:
        for problem in node.get("problems") or ():
            print_line(f"{node[name]}: {problem}")


def _model_row(model: Row) -> tuple[object, ...]:
    ready = f"{model.get('replicas_ready')}/{model.get('replicas_wanted')}"
    return (model["name"], model.get("aliases"), ready, model.get("reason"))


def _replica_row(replica: Row) -> tuple[object, ...]:
    return (
        replica["replica_id"],
        replica.get("model"),
        replica.get("state"),
        replica.get("node"),
        replica.get("pid") or None,
        (replica.get("endpoint") or "").removeprefix("http://"),
        replica.get("reason"),
    )


def _print_status(status: Row) -> None:
    leader = status.get("leader")
    leads = f"{leader['id']} leads (term {leader['term']})" if leader else "nobody leads"
    settling = ", settling" if status.get("settling") else ""
    revision = status.get("catalog_revision")
    typer.echo(f"cluster {status.get('cluster')}: {leads}{settling}, catalog revision {revision}")
    for problem in status.get("problems") or ():
        print_line(f"problem: {problem}")
    typer.echo("")
    planes = status.get("control_planes") or []
    rows = [
        (plane["id"], plane.get("role"), plane.get("admin_address"), plane.get("agent_address"))
        for plane in planes
    ]
    print_table(("CONTROL PLANE", "ROLE", "ADMIN", "AGENTS DIAL"), rows, "no control planes")
    for key, kind in (("agents", "nodes"), ("models", "models"), ("replicas", "replicas")):
        typer.echo("")
        if status.get(key) is None:
            typer.echo(f"{kind}: unknown, as no leader can be asked")
        else:
            _print_list(kind, status[key])
