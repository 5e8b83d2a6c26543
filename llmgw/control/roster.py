"""The roster: node ids known to the cluster, written when a node is first seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ha.store import ModRevisionIs, Put
from llmgw.kit import wall_now
from llmgw.wire.keys import decode

if TYPE_CHECKING:
    from ha.store import Store
    from llmgw.control.fenced import FencedWriter
    from llmgw.wire.keys import Keys


class Roster:
    """Known node ids, as far as this leader read or wrote them."""

    def __init__(self, store: Store, keys: Keys, writer: FencedWriter, *, timeout_s: float) -> None:
        self._store = store
        self._keys = keys
        self._writer = writer
        self._timeout_s = timeout_s
        self.node_ids: set[str] = set()

    async def read(self) -> None:
        """Read the whole roster.

        Raises:
            StoreError: no usable answer.
        """
        listing = await self._store.list(self._keys.roster, timeout_s=self._timeout_s)
        self.node_ids = {decode(item.key.removeprefix(self._keys.roster)) for item in listing.items}

    async def admit(self, node_id: str) -> None:
        """Put a node on the roster unless it stands there.

        Raises:
            NotLeaderError: this process does not lead.
            StoreError: no usable answer.
        """
        if node_id in self.node_ids:
            return
        key = self._keys.roster_node(node_id)
        document = {"node_id": node_id, "first_seen": wall_now().isoformat(), "mode": "active"}
        # If it stands there already, somebody wrote it before: that is as good.
        await self._writer.txn([ModRevisionIs(key, 0)], [Put(key, json.dumps(document).encode())])
        self.node_ids.add(node_id)
