"""The operator's tool: `llmgw ctl`. Verbs and their options; the work is in one module each."""

from typing import Annotated

import typer

from llmgw.ctl import catalog, leader, status
from llmgw.ctl.errors import operator_command
from llmgw.ctl.options import AdminOption, OutputOption, make_client
from llmgw.ctl.output import Output

HELP = """See and steer a cluster through the admin API of any control plane.

Standbys answer what they can and name the leader for the rest; this tool goes there by itself.

\b
Examples:
  llmgw ctl status
  llmgw ctl get -o yaml > catalog.yaml      # edit it, then
  llmgw ctl apply -f catalog.yaml
  llmgw ctl replicas -o json
  LLMGW_ADMIN=cp1:8081,cp2:8081,cp3:8081 llmgw ctl leader

\b
Exit codes:
  0  done
  1  failed: no control plane answered, or none leads
  2  the input is wrong or was refused
  3  conflict: the catalog changed since it was read
  4  not found
"""

app = typer.Typer(
    help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
)
leader_app = typer.Typer(rich_markup_mode=None)
app.add_typer(leader_app, name="leader")


@app.callback()
def _remember(ctx: typer.Context, admin: AdminOption = None) -> None:
    ctx.obj = admin


@app.command("status")
@operator_command
def status_command(
    ctx: typer.Context, admin: AdminOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Who leads, which agents are attached, which models run. Exit code 1 if nobody leads."""
    status.show_status(make_client(ctx, admin), output)


@app.command("nodes")
@operator_command
def nodes_command(
    ctx: typer.Context, admin: AdminOption = None, output: OutputOption = Output.TABLE
) -> None:
    """The machines that run an agent, and how they are."""
    status.show_nodes(make_client(ctx, admin), output)


@app.command("models")
@operator_command
def models_command(
    ctx: typer.Context, admin: AdminOption = None, output: OutputOption = Output.TABLE
) -> None:
    """The models in force: replicas wanted, ready, and why not."""
    status.show_models(make_client(ctx, admin), output)


@app.command("replicas")
@operator_command
def replicas_command(
    ctx: typer.Context, admin: AdminOption = None, output: OutputOption = Output.TABLE
) -> None:
    """The running copies of models: node, pid, state, endpoint."""
    status.show_replicas(make_client(ctx, admin), output)


@app.command("apply")
@operator_command
def apply_command(
    ctx: typer.Context,
    *,
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE", help="A YAML file; - is standard input.")
    ],
    prune: Annotated[
        bool, typer.Option("--prune", help="Also remove every model that the file does not name.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite even if the catalog changed meanwhile.")
    ] = False,
    admin: AdminOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Put the models of a file in force, all of them or none.

    Models that are in force and not in the file stay (see --prune). A file printed by
    `llmgw ctl get` carries the revision it was read at and is refused with exit code 3 if the
    catalog changed since. Problems are listed as file:line: field: reason.

    \b
    A file looks like this (`llmgw ctl schema` has all fields):
      models:
        - name: smollm2
          aliases: [small]
          replicas: 2
          model_path: /models/smollm2.gguf
          profiles:
            - name: cpu
              engine: llamacpp
    """  # noqa: D301 - \b keeps the lines of a paragraph as they are
    checked = catalog.load_file(file)
    result = catalog.apply_file(make_client(ctx, admin), checked, prune=prune, force=force)
    catalog.print_changes(result, output)


@app.command("get")
@operator_command
def get_command(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Names or aliases; else all.")
    ] = None,
    admin: AdminOption = None,
    output: OutputOption = Output.YAML,
) -> None:
    """Print models in force, as `apply` takes them back."""
    catalog.show_catalog(make_client(ctx, admin), names or [], output)


@app.command("delete")
@operator_command
def delete_command(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Models to remove.")],
    admin: AdminOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove models: withdrawn, then drained, then stopped."""
    result = catalog.delete_models(make_client(ctx, admin), names)
    catalog.print_changes(result, output)


@app.command("schema")
@operator_command
def schema_command(
    ctx: typer.Context, admin: AdminOption = None, output: OutputOption = Output.JSON
) -> None:
    """The JSON Schema of one model of the catalog."""
    catalog.show_schema(make_client(ctx, admin), output)


@leader_app.callback(invoke_without_command=True)
@operator_command
def leader_command(
    ctx: typer.Context, admin: AdminOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Who leads; `leader resign` makes it hand over."""
    if admin:
        ctx.obj = admin
    if ctx.invoked_subcommand is None:
        leader.show_leader(make_client(ctx, admin), output)


@leader_app.command("resign")
@operator_command
def resign_command(
    ctx: typer.Context,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the records.")] = "",
    admin: AdminOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make the leader hand over to a standby: it finishes what it owes, then gives up the lease."""
    leader.resign_leader(make_client(ctx, admin), reason, output)
