"""`llmgw control`: reads settings, chooses etcd, opens the listeners, and ends in order.

The only place of the control plane that knows there is an etcd. On SIGTERM or SIGINT a leader
stops commanding, writes what is queued and gives up its lease before anything else closes; a
second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ha.clock import BootClock
from ha.elector import Timing
from ha.etcd import EtcdStore, EtcdTls, version_warning
from ha.store import StoreError
from llmgw.control.api.server import AdminServer
from llmgw.control.core.bookings import PortRange
from llmgw.control.core.expiry import Limits
from llmgw.control.plane import ControlPlane
from llmgw.control.settings import ControlSettings
from llmgw.control.term import TermSettings
from llmgw.kit.journal import Journal
from llmgw.kit.logs import configure_logs, get_logger
from llmgw.kit.settings import SettingsError, load_settings
from llmgw.kit.tasks import stop_on_signals
from llmgw.kit.tls import read_tls
from llmgw.wire.link import AgentListener, RefusalKind, RefusedError, TlsFiles

if TYPE_CHECKING:
    from ha.store import Store
    from llmgw.wire.link import NodeStream

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
HAND_OVER_S = 2.0
VERSION_TIMEOUT_S = 2.0
VERSION_RETRY_S = 2.0
LISTENER_GRACE_S = 0.1
_ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to

_log = get_logger(__name__)

Text = Annotated[str | None, typer.Option()]
File = Annotated[Path | None, typer.Option()]
Seconds = Annotated[float | None, typer.Option(metavar="SECONDS")]
Number = Annotated[int | None, typer.Option()]
Id = Annotated[
    str | None, typer.Option(help="name of this control plane [default: the host's name]")
]
Cluster = Annotated[str | None, typer.Option(help="name of the cluster in etcd [default: default]")]
Etcd = Annotated[
    list[str] | None, typer.Option(metavar="HOST:PORT", help="etcd endpoint; repeatable")
]
AgentListen = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="where agents connect [default: 127.0.0.1:8443]"),
]
AgentAddress = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="what agents are told [default: --agent-listen]"),
]
AdminListen = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="the admin API [default: 127.0.0.1:8081]")
]
AdminAddress = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="what others are told [default: --admin-listen]"),
]
Insecure = Annotated[bool | None, typer.Option("--insecure", help="agents connect without TLS")]
JournalFile = Annotated[
    Path | None, typer.Option(help="record roles, commands and writes in this file")
]
LogForm = Annotated[str | None, typer.Option(help="console or json")]
Config = Annotated[Path | None, typer.Option(help="a TOML file with these settings")]


class PortTakenError(Exception):
    """An address cannot be listened on; the message names it and its flag."""


def command(
    *,
    id: Id = None,  # noqa: A002 - the flag's name
    cluster: Cluster = None,
    etcd: Etcd = None,
    etcd_ca: File = None,
    etcd_cert: File = None,
    etcd_key: File = None,
    etcd_user: Text = None,
    etcd_password_file: File = None,
    agent_listen: AgentListen = None,
    agent_address: AgentAddress = None,
    admin_listen: AdminListen = None,
    admin_address: AdminAddress = None,
    lease_ttl_s: Seconds = None,
    heartbeat_interval_s: Seconds = None,
    suspect_after_s: Seconds = None,
    lost_after_s: Seconds = None,
    settle_cap_s: Seconds = None,
    engine_port_first: Number = None,
    engine_port_count: Number = None,
    tls_ca: File = None,
    tls_cert: File = None,
    tls_key: File = None,
    insecure: Insecure = None,
    journal: JournalFile = None,
    log_format: LogForm = None,
    config: Config = None,
) -> None:
    """Run one control plane: it campaigns, and leads, freezes or stands by."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    try:
        settings = load_settings(ControlSettings, flags, config=config)
        tls = _agent_tls(settings)
    except SettingsError as error:
        _fail(f"{error}", EXIT_BAD_INPUT)
    configure_logs("control", settings.log_format)
    try:
        asyncio.run(_serve(settings, tls))
    except ValueError as error:
        _fail(str(error), EXIT_BAD_INPUT)
    except (PortTakenError, OSError) as error:
        _fail(str(error), EXIT_FAILED)


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(code)


class _Door:
    """Takes agent streams from the moment the port is open, before the plane is assembled."""

    def __init__(self) -> None:
        self.plane: ControlPlane | None = None

    async def serve(self, stream: NodeStream) -> None:
        if self.plane is None:
            raise RefusedError(RefusalKind.UNAVAILABLE, "this control plane is starting")
        await self.plane.leader.serve(stream)


async def _serve(settings: ControlSettings, tls: TlsFiles | None) -> None:
    store = _open_store(settings)
    journal = Journal(settings.journal, control_plane=settings.id)
    door = _Door()
    listener = AgentListener(door.serve, tls=tls)
    try:
        with _bind(settings.admin_listen, "--admin-listen") as admin_socket:
            agent_port = await _listen(listener, settings.agent_listen)
            plane = _assemble(settings, store, journal, agent_port, admin_socket)
            door.plane = plane
            await _run_plane(plane, store, AdminServer(plane), admin_socket)
            await listener.stop(LISTENER_GRACE_S)
    finally:
        await store.close()
        journal.close()


def _assemble(
    settings: ControlSettings,
    store: Store,
    journal: Journal,
    agent_port: int,
    admin_socket: socket.socket,
) -> ControlPlane:
    admin_port = admin_socket.getsockname()[1]
    return ControlPlane(
        store,
        BootClock(),
        cluster=settings.cluster,
        settings=_term_settings(settings),
        agent_address=settings.agent_address or _told(settings.agent_listen, agent_port),
        admin_address=settings.admin_address or _told(settings.admin_listen, admin_port),
        timing=Timing(lease_ttl_s=settings.lease_ttl_s),
        random=random.SystemRandom(),
        journal=journal,
    )


async def _run_plane(
    plane: ControlPlane, store: Store, admin: AdminServer, admin_socket: socket.socket
) -> None:
    with stop_on_signals() as stop:
        await admin.start(admin_socket)
        _log.info("serving", id=plane.id, admin=plane.admin_address, agents=plane.agent_address)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(plane.run()),
                group.create_task(_check_version(plane, store)),
            ]
            await stop.wait()
            _end_at_second_signal()
            _log.info("stopping")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HAND_OVER_S):
                    await plane.leader.resign("this control plane was told to stop")
                    await plane.leader.wait_idle()
            for task in tasks:
                task.cancel()
        await admin.stop()


def _end_at_second_signal() -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, os._exit, EXIT_FAILED)


async def _check_version(plane: ControlPlane, store: Store) -> None:
    """Ask the store's version once it answers; old ones have faults worth a warning."""
    waited = False
    while True:
        try:
            version = await store.version(timeout_s=VERSION_TIMEOUT_S)
        except StoreError as error:
            if not waited:
                _log.warning("etcd does not answer yet; waiting for it", reason=str(error))
            waited = True
            await asyncio.sleep(VERSION_RETRY_S)
            continue
        if waited:
            _log.info("etcd answers", version=version)
        if (warning := version_warning(version)) is not None:
            _log.warning(warning)
            plane.warnings.append(warning)
        return


def _open_store(settings: ControlSettings) -> EtcdStore:
    tls = None
    if settings.etcd_ca and settings.etcd_cert and settings.etcd_key:
        tls = EtcdTls(
            ca=settings.etcd_ca.read_bytes(),
            certificate=settings.etcd_cert.read_bytes(),
            key=settings.etcd_key.read_bytes(),
        )
    password = ""
    if settings.etcd_password_file is not None:
        password = settings.etcd_password_file.read_text(encoding="utf-8").strip()
    return EtcdStore(settings.etcd, tls=tls, user=settings.etcd_user, password=password)


def _agent_tls(settings: ControlSettings) -> TlsFiles | None:
    if settings.tls_ca and settings.tls_cert and settings.tls_key:
        return TlsFiles(*read_tls(settings.tls_ca, settings.tls_cert, settings.tls_key))
    return None


def _term_settings(settings: ControlSettings) -> TermSettings:
    return TermSettings(
        control_plane_id=settings.id,
        heartbeat_interval_s=settings.heartbeat_interval_s,
        settle_cap_s=settings.settle_cap_s,
        limits=Limits(settings.suspect_after_s, settings.lost_after_s),
        ports=PortRange(settings.engine_port_first, settings.engine_port_count),
    )


def _bind(address: str, flag: str) -> socket.socket:
    host, port = _split(address, flag)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise PortTakenError(f"cannot listen on {address} ({flag}): {why}") from error


async def _listen(listener: AgentListener, address: str) -> int:
    # Tried with a plain socket first: gRPC says it in a page of its own, and not why.
    _bind(address, "--agent-listen").close()
    try:
        return await listener.start(address)
    except OSError as error:
        raise PortTakenError(f"cannot listen on {address} (--agent-listen): {error}") from error


def _split(address: str, flag: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit():
        raise ValueError(f"{flag} {address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _told(listen: str, port: int) -> str:
    """The address others are told when none is given; "any address" is nobody's."""
    host = listen.rpartition(":")[0]
    return f"{socket.gethostname() if host.strip('[]') in _ANY_ADDRESS else host}:{port}"
