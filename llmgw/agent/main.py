"""`llmgw agent`: settings, the state directory's lock, signals."""

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field, field_validator, model_validator

from llmgw.agent.agent import Agent
from llmgw.agent.engines import installed_engines
from llmgw.agent.errors import AgentError, StateDirError
from llmgw.agent.search import ControlName
from llmgw.agent.shard import Limits
from llmgw.kit.journal import Journal
from llmgw.kit.logs import LogFormat, configure_logs, get_logger
from llmgw.kit.settings import Settings, SettingsError, load_settings
from llmgw.kit.tasks import stop_on_signals
from llmgw.kit.tls import read_tls
from llmgw.wire.link import GrpcDialer, TlsFiles

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
PORT_MAX = 65_535

_log = get_logger(__name__)


class AgentSettings(Settings):
    """Settings of one agent; see the flags for what they mean."""

    node_id: str = Field(default_factory=socket.gethostname, min_length=1)
    control: tuple[str, ...] = ()
    tls_server_name: str = ""
    state_dir: Path = Path("llmgw-agent")
    address: str = "127.0.0.1"
    pool: str = ""
    label: tuple[str, ...] = ()
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    stop_engines: bool = False
    stop_grace_s: float = Field(default=Limits().stop_grace_s, ge=0)
    drain_timeout_s: float = Field(default=Limits().drain_timeout_s, ge=0)
    journal: Path | None = None
    log_format: LogFormat = "console"

    @field_validator("control")
    @classmethod
    def _addresses(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            split_address(value)
        return values

    @field_validator("label")
    @classmethod
    def _labels(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            if "=" not in value:
                raise ValueError(f"{value!r} is not K=V")
        return values

    @model_validator(mode="after")
    def _complete(self) -> "AgentSettings":
        if self.stop_engines:
            return self
        if not self.control:
            raise ValueError("say where the control planes are: --control HOST:PORT")
        files = (self.tls_ca, self.tls_cert, self.tls_key)
        if not self.insecure and None in files:
            raise ValueError("give --tls-ca, --tls-cert and --tls-key, or --insecure")
        return self


def split_address(text: str) -> tuple[str, int]:
    """`host:port` in two; an IPv6 address stands in brackets.

    Raises:
        ValueError: it is not of that form.
    """
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or (":" in bare and bare == host) or not port.isdigit() or int(port) > PORT_MAX:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return bare, int(port)


@contextlib.contextmanager
def locked(state_dir: Path) -> Iterator[None]:
    """Hold a state directory: one agent each.

    Raises:
        StateDirError: it is taken, or cannot be made or written.
    """
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        file = (state_dir / "lock").open("a+", encoding="ascii")
    except OSError as error:
        raise StateDirError(f"cannot use --state-dir {state_dir}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            raise StateDirError(
                f"--state-dir {state_dir} is in use by another agent (pid {owner})"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def command(
    *,
    node_id: Annotated[str | None, typer.Option(help="Name of this node [hostname].")] = None,
    control: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PORT of control planes; a host may have many addresses."),
    ] = None,
    tls_server_name: Annotated[
        str | None, typer.Option(help="The name TLS must verify [the host of --control].")
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="Where shards are remembered [llmgw-agent].")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address that engines bind to and routers dial [127.0.0.1].")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="The pool this node is in.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="K=V, repeatable.")] = None,
    tls_ca: Annotated[Path | None, typer.Option(help="PEM of the CA to trust.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM of this node's certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM of its key.")] = None,
    insecure: Annotated[bool | None, typer.Option("--insecure", help="No TLS.")] = None,
    stop_engines: Annotated[
        bool | None, typer.Option("--stop-engines", help="Stop what this state dir holds; exit.")
    ] = None,
    stop_grace_s: Annotated[
        float | None, typer.Option(help="Seconds between TERM and KILL [15].")
    ] = None,
    drain_timeout_s: Annotated[
        float | None, typer.Option(help="Seconds a draining engine may take [120].")
    ] = None,
    journal: Annotated[Path | None, typer.Option(help="Append what is done to FILE.")] = None,
    log_format: Annotated[str | None, typer.Option(help="console or json [console].")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.")] = None,
) -> None:
    """Run one node's agent. On SIGTERM it exits and engines run on."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    try:
        settings = load_settings(AgentSettings, flags, config=config)
        tls = _read_tls(settings)
    except SettingsError as error:
        _fail(str(error), EXIT_BAD_INPUT)
    configure_logs("agent", settings.log_format)
    try:
        with locked(settings.state_dir):
            asyncio.run(_run(settings, tls))
    except AgentError as error:
        _fail(str(error), EXIT_FAILED)


async def _run(settings: AgentSettings, tls: TlsFiles | None) -> None:
    journal = Journal(settings.journal, node_id=settings.node_id)
    agent = Agent(
        node_id=settings.node_id,
        address=settings.address,
        pool=settings.pool,
        labels=dict(item.split("=", 1) for item in settings.label),
        state_dir=settings.state_dir.resolve(),
        controls=[_control_name(item, settings.tls_server_name) for item in settings.control],
        dialer=GrpcDialer(tls=tls),
        engines=installed_engines(),
        limits=Limits(settings.stop_grace_s, settings.drain_timeout_s),
        journal=journal,
    )
    with contextlib.closing(journal), stop_on_signals() as stop:
        if settings.stop_engines:
            count = await agent.stop_engines("the operator said --stop-engines")
            _log.info("engines_stopped", shards=count)
            return
        _log.info("serving", node_id=settings.node_id, state_dir=str(settings.state_dir))
        await agent.run(stop)
        _log.info("stopped", engines="left running")


def _control_name(text: str, server_name: str) -> ControlName:
    host, port = split_address(text)
    return ControlName(host, port, server_name or host)


def _read_tls(settings: AgentSettings) -> TlsFiles | None:
    if settings.insecure or not (settings.tls_ca and settings.tls_cert and settings.tls_key):
        return None
    return TlsFiles(*read_tls(settings.tls_ca, settings.tls_cert, settings.tls_key))


def _fail(message: str, code: int) -> None:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(code)
