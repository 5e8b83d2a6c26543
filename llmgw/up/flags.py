"""The flags of `llmgw up`: their types and what `--help` says about them."""

from pathlib import Path
from typing import Annotated

import typer

ControlPlanes = Annotated[int, typer.Option(help="How many control planes.")]
Agents = Annotated[int, typer.Option(help="How many nodes, each with its agent.")]
EtcdMembers = Annotated[int, typer.Option(help="How many etcd members.")]
StateDirectory = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where state and logs go. [~/.local/state/llmgw/up]"),
]
Catalog = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="The models to run, and no others; as for `ctl apply`."),
]
PortBase = Annotated[
    int | None,
    typer.Option(metavar="P", help="Use ports P, P+1, ... [8080, 8081, 8443, 12379, 12380]"),
]
ReadyFile = Annotated[
    Path | None,
    typer.Option(metavar="F", help="Write addresses and pids here when the model answers."),
]
Once = Annotated[bool, typer.Option("--once", help="End after the first answer.")]
KeepEngines = Annotated[
    bool, typer.Option("--keep-engines", help="Leave engines for the next `up` to adopt.")
]
Journal = Annotated[
    bool, typer.Option("--journal", help="Record what each part does in DIR/journals.")
]
