"""A candidate as a process of its own, which writes as fast as it may while it leads.

Run as `python -m tests.real_etcd.candidate ENDPOINTS PREFIX IDENTITY LEASE_TTL_S GUARDS`. Every
write puts `PREFIX + "writes"` to `IDENTITY`. Each change of role is a line on standard output.

GUARDS says what keeps it from writing when it should not: `deadline+fence`, or only one of the two
(`deadline`, `fence`), or `none`, which shows that the test can see a stale write.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys

from ha.clock import BootClock
from ha.elector import ElectionKeys, Elector, Timing
from ha.etcd import EtcdStore
from ha.store import Put, StoreError


def election_keys(prefix: str) -> ElectionKeys:
    """The keys under a test's prefix."""
    return ElectionKeys(prefix + "leader", prefix + "term", prefix + "candidates/")


class BelieverElector(Elector):
    """Believes that it leads, whatever the deadline says, until it stands by."""

    def is_leader(self) -> bool:
        return self._core.owns_key

    def seconds_left(self) -> float:
        return 1.0


async def main(endpoints: str, prefix: str, identity: str, lease_ttl_s: str, guards: str) -> None:
    store = EtcdStore(endpoints.split(","))
    kind = Elector if "deadline" in guards else BelieverElector
    elector = kind(
        store,
        BootClock(),
        keys=election_keys(prefix),
        identity=identity,
        facts={},
        timing=Timing(lease_ttl_s=float(lease_ttl_s)),
        random=random.Random(),
        on_transition=lambda change: print(change.new, change.term, change.reason, flush=True),  # noqa: T201 - what the test reads
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(elector.run())
        while True:
            leadership = await elector.lead()
            put = Put(prefix + "writes", identity.encode())
            with contextlib.suppress(StoreError):
                if "fence" in guards:
                    await leadership.txn([], [put], timeout_s=1)
                elif leadership.is_leader():
                    await store.txn([], [put], timeout_s=1)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
