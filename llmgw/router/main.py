"""`llmgw router`: its settings, and the one place in the router that chooses etcd."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
import uvloop
from pydantic import Field

from ha.clock import BootClock
from ha.etcd import EtcdStore, EtcdTls
from llmgw.kit.journal import Journal
from llmgw.kit.logs import LogFormat, configure_logs, get_logger
from llmgw.kit.settings import Settings, SettingsError, load_settings
from llmgw.kit.tasks import stop_on_signals
from llmgw.router.app import BODY_BYTES_MAX
from llmgw.router.exchange import Limits
from llmgw.router.program import RouterOptions, serve
from llmgw.router.server import open_listener
from llmgw.wire.keys import Keys

if TYPE_CHECKING:
    from ha.store import Store

_DEFAULTS = Limits()
_PORT_MAX = 65_535
EXIT_FAILED = 1
EXIT_USAGE = 2


def _default_state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "llmgw" / "router"


class RouterSettings(Settings):
    """Everything a router can be told. Times in seconds."""

    id: str = Field(default_factory=socket.gethostname, min_length=1)
    cluster: str = Field(default="default", min_length=1)
    etcd: list[str] = Field(default=["127.0.0.1:2379"], min_length=1)
    etcd_ca: Path | None = None
    etcd_cert: Path | None = None
    etcd_key: Path | None = None
    etcd_user: str = ""
    etcd_password_file: Path | None = None
    listen: str = "127.0.0.1:8080"
    state_dir: Path = Field(default_factory=_default_state_dir)
    connect_timeout_s: float = Field(default=_DEFAULTS.connect_s, gt=0)
    first_byte_timeout_s: float = Field(default=_DEFAULTS.first_byte_s, gt=0)
    idle_timeout_s: float = Field(default=_DEFAULTS.silence_s, gt=0)
    sse_comment_s: float = Field(default=_DEFAULTS.comment_s, gt=0)
    body_bytes_max: int = Field(default=BODY_BYTES_MAX, gt=0)
    journal: Path | None = None
    log_format: LogFormat = "console"


def command(  # noqa: PLR0917 - typer turns every parameter into a flag
    router_id: Annotated[str | None, typer.Option("--id", help="Name of this router.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Name of the cluster.")] = None,
    etcd: Annotated[list[str] | None, typer.Option(help="HOST:PORT of etcd; repeatable.")] = None,
    etcd_ca: Annotated[Path | None, typer.Option(help="CA of etcd's certificates.")] = None,
    etcd_cert: Annotated[Path | None, typer.Option(help="Client certificate for etcd.")] = None,
    etcd_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    etcd_user: Annotated[str | None, typer.Option(help="User at etcd.")] = None,
    etcd_password_file: Annotated[
        Path | None, typer.Option(help="File with the user's password.")
    ] = None,
    listen: Annotated[str | None, typer.Option(help="HOST:PORT for clients.")] = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="Folder for the signed copy of the route table.")
    ] = None,
    connect_timeout_s: Annotated[
        float | None, typer.Option(help="Longest wait for a connection to an engine.")
    ] = None,
    first_byte_timeout_s: Annotated[
        float | None, typer.Option(help="Longest wait for an engine's first byte.")
    ] = None,
    idle_timeout_s: Annotated[
        float | None, typer.Option(help="Longest silence between two bytes of an answer.")
    ] = None,
    sse_comment_s: Annotated[
        float | None, typer.Option(help="Silence after which a stream gets a comment.")
    ] = None,
    body_bytes_max: Annotated[
        int | None, typer.Option(help="Largest request body, in bytes.")
    ] = None,
    journal: Annotated[Path | None, typer.Option(help="File for a record of requests.")] = None,
    log_format: Annotated[str | None, typer.Option(help="console or json.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with these settings.")] = None,
) -> None:
    """Route clients' requests to ready engines."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    flags["id"] = flags.pop("router_id")
    try:
        settings = load_settings(RouterSettings, flags, config=config)
        host, port = _split_address(settings.listen)
        store_arguments = _etcd_arguments(settings)
    except SettingsError as error:
        _fail(str(error), EXIT_USAGE)
    configure_logs("router", settings.log_format)
    try:
        listener = open_listener(host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        _fail(f"cannot listen on {settings.listen} (--listen): {reason}", EXIT_FAILED)
    # What was imported stays for good: no collection needs to look at it again.
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings, store_arguments, listener))
    except SettingsError as error:
        _fail(str(error), EXIT_USAGE)


async def _run(
    settings: RouterSettings, etcd: tuple[EtcdTls | None, str, str], listener: socket.socket
) -> None:
    tls, user, password = etcd
    try:
        store: Store = EtcdStore(settings.etcd, tls=tls, user=user, password=password)
    except ValueError as error:
        raise SettingsError(f"--etcd: {error}") from error
    journal = Journal(settings.journal, program="router", id=settings.id)
    options = RouterOptions(
        keys=Keys(settings.cluster),
        state_dir=settings.state_dir,
        limits=Limits(
            connect_s=settings.connect_timeout_s,
            first_byte_s=settings.first_byte_timeout_s,
            silence_s=settings.idle_timeout_s,
            comment_s=settings.sse_comment_s,
        ),
        body_bytes_max=settings.body_bytes_max,
    )
    host, port = listener.getsockname()[:2]
    shown = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    get_logger(__name__).info("serving", address=shown, id=settings.id, etcd=settings.etcd)
    try:
        with stop_on_signals() as stop:
            await serve(
                options,
                store=store,
                clock=BootClock(),
                journal=journal,
                listener=listener,
                stop=stop,
            )
    finally:
        journal.close()
        await store.close()


def _split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise SettingsError(f"--listen: {address!r} is not HOST:PORT")
    return host, int(port)


def _etcd_arguments(settings: RouterSettings) -> tuple[EtcdTls | None, str, str]:
    password = ""
    if settings.etcd_password_file is not None:
        password = _read(settings.etcd_password_file, "--etcd-password-file").decode().strip()
    files = (settings.etcd_ca, settings.etcd_cert, settings.etcd_key)
    if files == (None, None, None):
        return None, settings.etcd_user, password
    ca, certificate, key = files
    if ca is None or certificate is None or key is None:
        raise SettingsError("--etcd-ca, --etcd-cert and --etcd-key belong together")
    tls = EtcdTls(
        ca=_read(ca, "--etcd-ca"),
        certificate=_read(certificate, "--etcd-cert"),
        key=_read(key, "--etcd-key"),
    )
    return tls, settings.etcd_user, password


def _read(path: Path, flag: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{flag}: {path}: {error.strerror}") from error


def _fail(message: str, exit_code: int) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(exit_code)
