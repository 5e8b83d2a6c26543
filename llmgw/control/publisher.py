"""The leader's hand on the `endpoints/` keys.

Guarantees: an endpoint counts as published only after the store said so; what is unchanged is not
rewritten; after an answer that was lost, and now and then besides, the keys are read again, so an
older list never stands against a newer one. Only a leader writes: every write is fenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.store import Delete, Put, StoreError
from llmgw.control.core.endpoints import diff
from llmgw.control.fenced import WRITES_MAX
from llmgw.domain.catalog import CatalogError, Problem
from llmgw.kit.logs import get_logger
from llmgw.wire.documents import parse_endpoint
from llmgw.wire.keys import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ha.clock import Clock
    from ha.store import Store, Write
    from llmgw.control.fenced import FencedWriter
    from llmgw.domain.endpoint import Endpoint
    from llmgw.wire.keys import Keys

REREAD_AFTER_S = 5.0

_log = get_logger(__name__)


class Publisher:
    """Mirrors desired endpoints into the store."""

    def __init__(
        self, store: Store, keys: Keys, writer: FencedWriter, clock: Clock, *, timeout_s: float
    ) -> None:
        self._store = store
        self._keys = keys
        self._writer = writer
        self._clock = clock
        self._timeout_s = timeout_s
        self._read_at_s: float | None = None
        self.held: dict[str, Endpoint | None] = {}
        """What stands in the store, by replica id; None is an unreadable value."""
        self._misplaced: list[str] = []
        """Keys that no publisher writes: routers read them, so they go like unreadable ones."""

    async def read(self) -> None:
        """Read the keys anew.

        Raises:
            StoreError: no usable answer.
        """
        prefix = self._keys.endpoints
        listing = await self._store.list(prefix, timeout_s=self._timeout_s)
        held: dict[str, Endpoint | None] = {}
        self._misplaced = []
        for item in listing.items:
            replica_id = decode(item.key.removeprefix(prefix))
            if not self._stands_for(item.key, replica_id):
                _log.warning("an endpoint's key is not its replica's", key=item.key)
                self._misplaced.append(item.key)
                continue
            try:
                held[replica_id] = _endpoint_of(replica_id, item.key, item.value)
            except CatalogError as error:
                _log.warning("unreadable endpoint", key=item.key, reason=str(error))
                held[replica_id] = None
        self.held = held
        self._read_at_s = self._clock.now_s()

    async def read_if_due(self) -> None:
        """Read again when the last reading is old, or its truth is in doubt.

        Raises:
            StoreError: no usable answer.
        """
        if self._read_at_s is None or self._clock.now_s() - self._read_at_s >= REREAD_AFTER_S:
            await self.read()

    async def publish(self, wanted: Mapping[str, Endpoint]) -> int:
        """Write the difference; returns how many keys changed.

        Raises:
            NotLeaderError: this process does not lead.
            StoreError: no usable answer; what stands is read again before the next write.
        """
        await self._remove_misplaced()
        puts, deletes = diff(wanted, self.held)
        changes: list[tuple[str, Endpoint | None]] = [(name, None) for name in deletes]
        changes += puts.items()
        for start in range(0, len(changes), WRITES_MAX):
            batch = changes[start : start + WRITES_MAX]
            try:
                await self._writer.txn((), [self._write(*change) for change in batch])
            except StoreError:
                self._read_at_s = None
                raise
            self._note(batch)
        return len(changes)

    def _stands_for(self, key: str, replica_id: str) -> bool:
        try:
            return key == self._keys.endpoint(replica_id)
        except UnicodeEncodeError:
            return False

    async def _remove_misplaced(self) -> None:
        batch = self._misplaced[:WRITES_MAX]
        if batch:
            await self._writer.txn((), [Delete(key) for key in batch])
            del self._misplaced[: len(batch)]

    def _write(self, replica_id: str, endpoint: Endpoint | None) -> Write:
        key = self._keys.endpoint(replica_id)
        if endpoint is None:
            return Delete(key)
        return Put(key, endpoint.model_dump_json().encode())

    def _note(self, batch: list[tuple[str, Endpoint | None]]) -> None:
        for replica_id, endpoint in batch:
            if endpoint is None:
                self.held.pop(replica_id, None)
                _log.info("endpoint withdrawn", replica=replica_id)
            else:
                self.held[replica_id] = endpoint
                _log.info("endpoint published", replica=replica_id, url=endpoint.url)


def _endpoint_of(replica_id: str, key: str, value: bytes) -> Endpoint:
    endpoint = parse_endpoint(key, value)
    if endpoint.replica_id != replica_id:
        raise CatalogError([Problem((key,), f"is replica {endpoint.replica_id!r}'s endpoint")])
    return endpoint
