"""Options that every `ctl` command shares, and the client they lead to."""

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from llmgw.ctl.client import ADMIN_DEFAULT, AdminClient
from llmgw.ctl.output import Output

ADMIN_VARIABLE = "LLMGW_ADMIN"

AdminOption = Annotated[
    list[str] | None,
    typer.Option(
        "--admin",
        metavar="URL",
        help="Admin address of a control plane; repeat it to name several: the next one is tried "
        f"when one is down. Else {ADMIN_VARIABLE} (comma-separated), else {ADMIN_DEFAULT}.",
    ),
]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="How to print the result.", show_default=True)
]


def admin_addresses(ctx: typer.Context, given: Sequence[str] | None) -> list[str]:
    """The addresses to try: of the command, else of `ctl` itself, else environment or default."""
    listed = given or (ctx.obj if isinstance(ctx.obj, list) else None)
    if not listed:
        listed = os.environ.get(ADMIN_VARIABLE, "").split(",")
    addresses = [part.strip() for text in listed for part in text.split(",") if part.strip()]
    return addresses or [ADMIN_DEFAULT]


def make_client(ctx: typer.Context, given: Sequence[str] | None) -> AdminClient:
    """A client for the addresses of this command line.

    Raises:
        RefusedError: an address cannot be read.
    """
    return AdminClient(admin_addresses(ctx, given))
