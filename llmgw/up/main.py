"""`llmgw up`: everything on this machine, nothing to configure."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import typer

from ha.clock import BootClock
from llmgw.ctl.catalog import load_file
from llmgw.ctl.errors import CtlError
from llmgw.up import flags
from llmgw.up import layout as layouts
from llmgw.up.bringup import BringUp, Wishes
from llmgw.up.console import Console
from llmgw.up.errors import UpError
from llmgw.up.etcd import find_etcd
from llmgw.up.readyfile import (
    forget_ready_file,
    prepare_ready_file,
    ready_document,
    write_ready_file,
)
from llmgw.up.state import Earlier, StateDir, check_etcd_fits, default_state_dir
from llmgw.up.system import System, check_free

EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    control_planes: int
    agents: int
    etcd_members: int
    state_dir: Path
    catalog: str | None
    port_base: int | None
    ready_file: Path | None
    once: bool
    keep_engines: bool
    journal: bool


def command(  # noqa: PLR0917 - a command line, called by name
    control_planes: flags.ControlPlanes = 3,
    agents: flags.Agents = 2,
    etcd_members: flags.EtcdMembers = 1,
    state_dir: flags.StateDirectory = None,
    catalog: flags.Catalog = None,
    port_base: flags.PortBase = None,
    ready_file: flags.ReadyFile = None,
    once: flags.Once = False,
    keep_engines: flags.KeepEngines = False,
    journal: flags.Journal = False,
) -> None:
    """Everything on this machine: etcd, control planes, a router, agents and a real small model.

    Each part is a real process, started again when it dies. The model's first answer is shown,
    then everything stays up until Ctrl-C, which stops all of it, engines too; a second Ctrl-C
    kills at once.

    \b
    Examples:
      llmgw up                              # three control planes, two nodes, SmolLM2
      llmgw up --once                       # end after the first answer
      llmgw up --catalog my-models.yaml     # your own models
      llmgw up --port-base 9000 --state-dir /tmp/second
    """  # noqa: D301 - \b keeps the lines of a paragraph as they are
    options = Options(
        control_planes=control_planes,
        agents=agents,
        etcd_members=etcd_members,
        state_dir=(state_dir or default_state_dir(os.environ, Path.home())).absolute(),
        catalog=catalog,
        port_base=port_base,
        ready_file=ready_file,
        once=once,
        keep_engines=keep_engines,
        journal=journal,
    )
    try:
        code = asyncio.run(run_up(options))
    except CtlError as error:
        typer.echo("\n".join(error.lines()), err=True)
        raise typer.Exit(error.exit_code) from error
    except UpError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
    raise typer.Exit(code)


class _Signals:
    """The operator's patience: the first signal asks, the second insists."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def run_up(options: Options) -> int:
    """Bring a system up, keep it up, stop it; the exit code.

    Raises:
        UpError: it could not come up; everything has been stopped again.
        CtlError: the catalog file was refused; nothing was started.
    """
    wishes = Wishes(load_file(options.catalog) if options.catalog else None, options.once)
    console, clock = Console(), BootClock()
    etcd_binary = find_etcd()
    _plan(options, None)  # a number out of range leaves no state directory behind
    if options.ready_file is not None:
        prepare_ready_file(options.ready_file)
    state = StateDir(options.state_dir)
    try:
        earlier = state.earlier()
        layout = _plan(options, earlier)
        peer_ports = tuple(member.peer_port for member in layout.etcd)
        check_etcd_fits(earlier, peer_ports)
        check_free(layout.listeners())
        network = layout.nodes[0].address.rpartition(".")[0]
        state.remember(Earlier(peer_ports, network))
        console.say(f"llmgw up: state and logs in {state.path}")
        system = System(layout, state, etcd_binary, console, clock, journal=options.journal)
        signals = _Signals()
        with signals.installed():
            try:
                finished = await _serve(system, state, wishes, options, signals)
            finally:
                await _shut_down(system, options, signals, console)
                if options.ready_file is not None and not options.once:
                    forget_ready_file(options.ready_file)
    finally:
        state.close()
    return EXIT_INTERRUPTED if options.once and not finished else 0


def _plan(options: Options, earlier: Earlier | None) -> layouts.Layout:
    return layouts.plan(
        control_planes=options.control_planes,
        agents=options.agents,
        etcd_members=options.etcd_members,
        port_base=options.port_base,
        node_network=earlier.node_network if earlier else None,
    )


async def _serve(
    system: System, state: StateDir, wishes: Wishes, options: Options, signals: _Signals
) -> bool:
    """Until the first signal, or the first answer with `--once`; whether there was an answer."""
    console = Console()
    failure: UpError | None = None
    try:
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as watching:
            bring_up = BringUp(
                system,
                state=state,
                wishes=wishes,
                console=console,
                clock=BootClock(),
                session=session,
            )

            def write_ready() -> None:
                if options.ready_file is not None and work.done():
                    document = ready_document(system.layout, system.pids, bring_up.models)
                    write_ready_file(options.ready_file, document)

            system.on_restart = write_ready
            work = watching.create_task(bring_up.run(watching))
            stop = watching.create_task(signals.first.wait())
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not stop.done():
                write_ready()
                if not options.once:
                    console.say("Ctrl-C stops everything.")
                    announcing = watching.create_task(bring_up.announce_leaders())
                    await stop
                    announcing.cancel()
            finished = work.done()
            system.stop_watching()
            work.cancel()
            stop.cancel()
    except* UpError as group:
        failure = _first(group)
    # Outside of `except*`, which on early releases of Python 3.11 wraps what is raised inside it.
    if failure is not None:
        raise failure
    return finished


def _first(group: BaseExceptionGroup[UpError]) -> UpError:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _shut_down(system: System, options: Options, signals: _Signals, console: Console) -> None:
    """Stop in order; at the second signal kill."""
    stopping = asyncio.create_task(system.stop(keep_engines=options.keep_engines))
    insisted = asyncio.create_task(signals.second.wait())
    await asyncio.wait({stopping, insisted}, return_when=asyncio.FIRST_COMPLETED)
    insisted.cancel()
    if stopping.done():
        await stopping
        console.say("everything is stopped")
        return
    console.say("killing everything")
    stopping.cancel()
    await asyncio.wait({stopping})
    await system.kill(keep_engines=options.keep_engines)
