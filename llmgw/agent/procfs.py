"""What /proc says: process stat lines, process groups, launch tokens, TCP connections.

Everything is read as bytes: a process may call itself anything, `a) R 1 (b` and bytes that are no
text included, so a stat line is cut at its *last* parenthesis. A process that vanishes while it
is read is simply not there. Zombies are not alive.
"""

from __future__ import annotations

import ipaddress
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PROC = Path("/proc")
LAUNCH_TOKEN = "LLMGW_LAUNCH_TOKEN"  # noqa: S105 - the name of a variable, not a secret
_DEAD_STATES = (b"Z", b"X", b"x")
_TCP_ESTABLISHED = b"01"
_TCP_LISTEN = b"0A"


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of /proc/<pid>/stat that matter here; ticks are clock ticks since boot."""

    pid: int
    name: bytes
    state: bytes
    parent: int
    group: int
    session: int
    cpu_ticks: int
    start_ticks: int
    resident_pages: int

    @property
    def alive(self) -> bool:
        """False for a zombie: it has exited, whether or not anybody reaped it."""
        return self.state not in _DEAD_STATES


def parse_stat(line: bytes) -> ProcessStat:
    """Read one stat line.

    Raises:
        ValueError: it is not one.
    """
    opening, closing = line.find(b"("), line.rfind(b")")
    fields = line[closing + 1 :].split()
    if opening < 0 or closing < opening or len(fields) < 22:  # noqa: PLR2004 - up to field 24
        raise ValueError(f"not a stat line: {line!r}")
    return ProcessStat(
        pid=int(line[:opening]),
        name=line[opening + 1 : closing],
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        resident_pages=int(fields[21]),
    )


def read_stat(pid: int) -> ProcessStat | None:
    """The stat of one process; None when there is none, or it vanished meanwhile."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_bytes())
    except (OSError, ValueError):
        return None


def all_stats() -> Iterator[ProcessStat]:
    """Every process there is, zombies included."""
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (stat := read_stat(int(entry.name))) is not None:
            yield stat


def group_members(group: int) -> list[ProcessStat]:
    """The live members of a process group."""
    return [stat for stat in all_stats() if stat.group == group and stat.alive]


def launch_token(pid: int) -> str | None:
    """The launch token in a process's environment; None without one or when unreadable."""
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    prefix = LAUNCH_TOKEN.encode() + b"="
    for item in environment.split(b"\0"):
        if item.startswith(prefix):
            return item[len(prefix) :].decode("utf-8", "replace")
    return None


def boot_id() -> str:
    """Names the time since the machine last booted."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def established_connections(address: str, port: int) -> int:
    """How many TCP connections to a local address and port are established.

    Nodes that share a machine use the same ports on addresses of their own, so a connection to
    another address is not counted, unless somebody listens to the port on every address. An
    address that is no literal stands for all.
    """
    sockets = list(_sockets_on(port))
    found = [local for local, state in sockets if state == _TCP_ESTABLISHED]
    everywhere = any(state == _TCP_LISTEN and not any(local) for local, state in sockets)
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return len(found)
    return len(found) if everywhere else sum(_is(local, wanted) for local in found)


def _sockets_on(port: int) -> Iterator[tuple[bytes, bytes]]:
    """Local address (in network order) and state of every TCP socket with this local port."""
    for table in ("net/tcp", "net/tcp6"):
        try:
            lines = (PROC / table).read_bytes().splitlines()[1:]
        except OSError:
            continue  # A kernel without IPv6 has no tcp6.
        for line in lines:
            fields = line.split()
            local, _, number = fields[1].rpartition(b":")
            if int(number, 16) == port:
                yield _network_order(bytes.fromhex(local.decode("ascii"))), fields[3]


def _network_order(words: bytes) -> bytes:
    """The kernel shows an address as words of four bytes in the order of this machine."""
    if sys.byteorder == "big":
        return words
    return b"".join(words[start : start + 4][::-1] for start in range(0, len(words), 4))


def _is(local: bytes, wanted: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """An IPv4 address, also one that a socket of IPv6 took in."""
    mapped = b"\0" * 10 + b"\xff\xff"
    return local.removeprefix(mapped) == wanted.packed
