"""The last-known-good route table on disk: what a router boots from when etcd is gone.

The copy is signed (HMAC-SHA256) with a key that only this user can read and that never leaves the
state directory. A copy that was changed, cut, or made by another router or cluster is refused, as
is one whose key others can read. Written whole or not at all; off the event loop; at most once
per `SAVE_DEBOUNCE_S`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import stat
from typing import TYPE_CHECKING

from pydantic import ValidationError

from llmgw.domain.endpoint import Endpoint
from llmgw.kit import wall_now
from llmgw.kit.files import write_atomically
from llmgw.kit.logs import get_logger
from llmgw.router.errors import SnapshotError
from llmgw.router.table import RouteTable, make_table

if TYPE_CHECKING:
    from pathlib import Path

_log = get_logger(__name__)
SAVE_DEBOUNCE_S = 0.5
_KEY_BYTES = 32
_FORMAT = 1
_SIGNATURE_LENGTH = hashlib.sha256().digest_size * 2


def seal(key: bytes, cluster: str, table: RouteTable, saved_at: str) -> bytes:
    """The file's content: the signature in hex, a line feed, the table as JSON."""
    content = json.dumps(
        {
            "format": _FORMAT,
            "cluster": cluster,
            "saved_at": saved_at,
            "names": dict(table.names),
            "endpoints": [
                endpoint.model_dump(mode="json")
                for listed in table.endpoints.values()
                for endpoint in listed
            ],
        },
        sort_keys=True,
    ).encode()
    return hmac.new(key, content, hashlib.sha256).hexdigest().encode() + b"\n" + content


def unseal(key: bytes, cluster: str, sealed: bytes) -> tuple[RouteTable, str]:
    """The table and when it was saved.

    Raises:
        SnapshotError: the signature does not match, or it is not for this cluster and program.
    """
    signature, content = sealed[:_SIGNATURE_LENGTH], sealed[_SIGNATURE_LENGTH + 1 :]
    expected = hmac.new(key, content, hashlib.sha256).hexdigest().encode()
    if not hmac.compare_digest(signature, expected):
        raise SnapshotError("its signature does not match: it was changed, cut, or is not ours")
    try:
        document = json.loads(content)
        if document["format"] != _FORMAT:
            raise SnapshotError(f"it has format {document['format']}, not {_FORMAT}")
        if document["cluster"] != cluster:
            raise SnapshotError(f"it is of cluster {document['cluster']!r}, not {cluster!r}")
        endpoints = [Endpoint.model_validate(item) for item in document["endpoints"]]
        return make_table(document["names"], endpoints), str(document["saved_at"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise SnapshotError(f"it cannot be read: {error}") from error


class Snapshot:
    """The copy in one state directory."""

    def __init__(self, state_dir: Path, cluster: str) -> None:
        self._path = state_dir / "routes.signed"
        self._key_path = state_dir / "routes.key"
        self._cluster = cluster
        self._latest: RouteTable | None = None
        self._changed = asyncio.Event()

    def load(self) -> RouteTable | None:
        """The table on disk; None, and why in the log, if there is none to trust."""
        try:
            sealed = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.error("route table on disk unreadable", path=str(self._path), reason=str(error))
            return None
        try:
            table, saved_at = unseal(self._key(), self._cluster, sealed)
        except SnapshotError as error:
            _log.error("route table on disk refused", path=str(self._path), reason=str(error))
            return None
        _log.info("route table read from disk", path=str(self._path), saved_at=saved_at)
        self._latest = table
        return table

    def offer(self, table: RouteTable) -> None:
        """Have this table written soon, if it differs from the last one."""
        if table != self._latest:
            self._latest = table
            self._changed.set()

    async def run(self) -> None:
        """Write what is offered, until cancelled; a disk that fails is reported, not fatal."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(SAVE_DEBOUNCE_S)
            self._changed.clear()
            await asyncio.to_thread(self._save_or_report)

    def flush(self) -> None:
        """Write now what was offered and not yet written."""
        if self._changed.is_set():
            self._changed.clear()
            self._save_or_report()

    def _save_or_report(self) -> None:
        if self._latest is None:
            return
        try:
            sealed = seal(
                self._make_key(),
                self._cluster,
                self._latest,
                wall_now().isoformat(timespec="seconds"),
            )
            write_atomically(self._path, sealed, mode=0o600)
        except OSError as error:
            _log.error("route table not written", path=str(self._path), reason=str(error))

    def _key(self) -> bytes:
        try:
            mode = stat.S_IMODE(self._key_path.stat().st_mode)
            key = self._key_path.read_bytes()
        except OSError as error:
            raise SnapshotError(f"its key {self._key_path} is not readable: {error}") from error
        if mode & 0o077:
            raise SnapshotError(f"its key {self._key_path} can be read by others ({mode:o})")
        if len(key) != _KEY_BYTES:
            raise SnapshotError(f"its key {self._key_path} is damaged")
        return key

    def _make_key(self) -> bytes:
        try:
            return self._key()
        except SnapshotError:
            key = secrets.token_bytes(_KEY_BYTES)
            write_atomically(self._key_path, key, mode=0o600)
            return key
