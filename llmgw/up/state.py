"""The state directory: one `up` at a time, and what a later one must know about an earlier one.

A later run on the same directory takes up the same etcd data and may adopt engines that still run.
Therefore the nodes keep their addresses, and the number of etcd members cannot change.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from llmgw.kit.files import write_atomically
from llmgw.up.errors import InputError, UpError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOG_BYTES_MAX = 8 * 2**20
_RECORD = "up.json"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a state directory was used with. Peer ports matter to more than one member."""

    etcd_peer_ports: tuple[int, ...]
    node_network: str


def default_state_dir(environment: Mapping[str, str], home: Path) -> Path:
    """Where state goes unless told otherwise."""
    base = environment.get("XDG_STATE_HOME", "")
    root = home / ".local" / "state" if not base.startswith("/") else home / base
    return root / "llmgw" / "up"


class StateDir:
    """A locked state directory. The lock ends with the process, however it ends."""

    def __init__(self, path: Path) -> None:
        """Create and lock the directory.

        Raises:
            UpError: another `up` uses it, or it cannot be written.
        """
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self.logs.mkdir(exist_ok=True)
            self._lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UpError(f"cannot use --state-dir {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(self._lock, 20).decode("ascii", "replace").strip() or "unknown"
            os.close(self._lock)
            raise UpError(
                f"another llmgw up (pid {holder}) uses the state directory {path}; "
                "stop it, or give this one another --state-dir and --port-base"
            ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    @property
    def logs(self) -> Path:
        """The folder of the parts' logs."""
        return self.path / "logs"

    @property
    def journals(self) -> Path:
        """The folder of the parts' journals."""
        return self.path / "journals"

    def earlier(self) -> Earlier | None:
        """What this directory was used with before; None when it is new or unreadable."""
        try:
            record = json.loads((self.path / _RECORD).read_bytes())
            return Earlier(tuple(record["etcd_peer_ports"]), str(record["node_network"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remember(self, used: Earlier) -> None:
        """Record what this directory is used with now.

        Raises:
            UpError: it cannot be written.
        """
        try:
            write_atomically(self.path / _RECORD, json.dumps(asdict(used)).encode() + b"\n")
        except OSError as error:
            raise self._unusable(error) from error

    def open_log(self, name: str) -> int:
        """A descriptor that appends to a part's log; a large one is put aside first.

        Raises:
            UpError: it cannot be written.
        """
        path = self.logs / f"{name}.log"
        try:
            if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
                path.replace(path.with_suffix(".log.1"))
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        """Give the directory up."""
        os.close(self._lock)

    def _unusable(self, error: OSError) -> UpError:
        where = error.filename or self.path
        return UpError(f"cannot use --state-dir {self.path}: {where}: {error.strerror}")


def check_etcd_fits(earlier: Earlier | None, peer_ports: tuple[int, ...]) -> None:
    """Refuse another etcd cluster than the one whose data lies in the state directory.

    Raises:
        InputError: the number of members differs, or the ports by which several find each other.
    """
    if earlier is None or earlier.etcd_peer_ports == peer_ports:
        return
    before = len(earlier.etcd_peer_ports)
    if before != len(peer_ports):
        raise InputError(
            f"the state directory holds an etcd of {before} member(s): use "
            f"--etcd-members {before}, or another --state-dir"
        )
    if before > 1:
        raise InputError(
            "the state directory holds an etcd whose members know each other by other ports: use "
            "the same --port-base as before, or another --state-dir"
        )
