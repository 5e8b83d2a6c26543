"""The ready-file: what a script needs to know of a running system, as JSON.

Written when the first model has answered, whole or not at all, and again whenever a part came back
under another pid.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from typing import TYPE_CHECKING, Any

from llmgw.kit.files import write_atomically
from llmgw.up.errors import UpError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from llmgw.up.layout import Layout


def ready_document(
    layout: Layout, pids: Mapping[str, int], models: Sequence[str]
) -> dict[str, Any]:
    """The content: addresses, ids, and the pid of each part by its name."""
    return {
        "router": layout.router,
        "admin": list(layout.admins),
        "control_planes": [
            {
                "id": plane.id,
                "pid": pids[plane.id],
                "warden_pid": None,
                "admin": f"http://{plane.admin}",
                "agent_address": plane.agent_address,
            }
            for plane in layout.control_planes
        ],
        "agents": [{"node_id": node.node_id, "pid": pids[node.node_id]} for node in layout.nodes],
        "etcd": {
            "endpoints": [member.endpoint for member in layout.etcd],
            "pids": [pids[member.name] for member in layout.etcd],
        },
        "models": list(models),
    }


def prepare_ready_file(path: Path) -> None:
    """Remove what an earlier run left, and make sure that the file can be written later.

    Raises:
        UpError: it cannot be written.
    """
    try:
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _cannot_write(path, error) from error


def write_ready_file(path: Path, document: Mapping[str, Any]) -> None:
    """Replace the file at once.

    Raises:
        UpError: it cannot be written.
    """
    try:
        write_atomically(path, json.dumps(document, indent=2).encode() + b"\n")
    except OSError as error:
        raise _cannot_write(path, error) from error


def forget_ready_file(path: Path) -> None:
    """Remove it, if that can be done: the system it tells of has ended."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _cannot_write(path: Path, error: OSError) -> UpError:
    return UpError(f"cannot write --ready-file {path}: {error.strerror}")
