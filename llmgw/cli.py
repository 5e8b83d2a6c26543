"""The `llmgw` command: one name in front of five programs.

Only the program that the command line names is imported, so that `llmgw ctl` answers quickly and
never loads gRPC. A mistake on the command line is one line on standard error that starts with
`error:`, and exit code 2; a traceback is a fault of the program, never of the operator.
"""

import errno
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NoReturn

import typer

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
# Of standard output, when it is a file: no fault of the program.
_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

OVERVIEW = """Serve large language models from a fleet of machines, behind one OpenAI address.

Start here: `llmgw up` runs all of it on this machine with a small real model.

On several machines: an etcd cluster, `llmgw control` on three machines, `llmgw agent` on every
machine with GPUs, `llmgw router` where clients connect; then `llmgw ctl apply -f catalog.yaml`
says which models should run, and `llmgw ctl status` what does.

Every program takes flags, LLMGW_* environment variables, a TOML file (--config) and defaults, in
that order of precedence; `llmgw COMMAND --help` lists them.
"""


@dataclass(frozen=True, slots=True)
class Program:
    """One subcommand: the module that holds it, and its line in the overview."""

    module: str
    summary: str


PROGRAMS = {
    "up": Program("llmgw.up.main", "Everything on this machine, with a real model."),
    "control": Program("llmgw.control.main", "One control plane."),
    "agent": Program("llmgw.agent.main", "One node's agent."),
    "router": Program("llmgw.router.main", "The OpenAI-compatible data plane."),
    "ctl": Program("llmgw.ctl.main", "The operator's tool: status, apply, get, delete ..."),
}


def build_app(wanted: str | None) -> typer.Typer:
    """The command line with one program loaded and the others as lines of the overview."""
    app = typer.Typer(
        help=OVERVIEW,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, program in PROGRAMS.items():
        if name != wanted:
            app.command(name, help=program.summary)(_not_loaded)
            continue
        module = importlib.import_module(program.module)
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(module.command)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    command = typer.main.get_command(build_app(wanted))
    try:
        code = command.main(list(arguments), prog_name="llmgw", standalone_mode=False)
    except typer.Abort:
        return EXIT_INTERRUPTED
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS:
            raise
        typer.echo(f"error: {(error.strerror or str(error)).lower()}", err=True)
        return EXIT_FAILED
    except Exception as error:
        # Mistakes on the command line; their base class has moved between versions of typer.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        return _report_usage(error, format_message())
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """The entry point of the `llmgw` script."""
    # gRPC's core tells of every closed connection on standard error, in a form of its own.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    sys.exit(run(sys.argv[1:]))


def _report_usage(error: Exception, message: str) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message, err=True)
        return EXIT_BAD_INPUT
    line = " ".join(message.replace("Value error, ", "").split()).rstrip(".")
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    typer.echo(f"error: {line[:1].lower()}{line[1:]}{hint}", err=True)
    return EXIT_BAD_INPUT


def _not_loaded() -> None:
    raise AssertionError("only the named program is loaded, and it was not named")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"llmgw {importlib.metadata.version('llmgw')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    del version  # its callback has printed it and ended the program
