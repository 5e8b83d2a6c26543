"""Which etcd servers have faults that an election should know of."""

from __future__ import annotations

import re

# The first release of each line without the faults named in the warning.
_SOUND_FROM = {(3, 4): 42, (3, 5): 28, (3, 6): 9}
_FAULTS = (
    "acknowledges leases that were revoked (below 3.4.38, 3.5.23, 3.6.5), lets a stuck ex-leader"
    " revoke live leases (below 3.4.31, 3.5.13) or answers stale reads after a pause"
)


def parse_version(version: str) -> tuple[int, int, int] | None:
    """`3.5.16` as numbers; None if it is not a version."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def version_warning(version: str) -> str | None:
    """What is known against a server version; None: nothing."""
    numbers = parse_version(version)
    if numbers is None:
        return f"etcd says its version is {version!r}, which is not a version"
    line, patch = numbers[:2], numbers[2]
    if line < min(_SOUND_FROM):
        return f"etcd {version} is older than 3.4: not supported"
    sound_from = _SOUND_FROM.get(line)
    if sound_from is None or patch >= sound_from:
        return None
    wanted = f"{line[0]}.{line[1]}.{sound_from}"
    return f"etcd {version} {_FAULTS}: upgrade to {wanted} or newer"
