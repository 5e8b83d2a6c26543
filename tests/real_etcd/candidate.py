"""A candidate as a process of its own, which writes as fast as it may while it leads.

Run as `python -m tests.real_etcd.candidate ENDPOINT PREFIX IDENTITY LEASE_TTL_S`. Every write puts
`PREFIX + "writes"` to `IDENTITY`, fenced. Each change of role is a line on standard output.
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


async def main(endpoint: str, prefix: str, identity: str, lease_ttl_s: str) -> None:
    elector = Elector(
        EtcdStore([endpoint]),
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
            with contextlib.suppress(StoreError):
                put = Put(prefix + "writes", identity.encode())
                await leadership.txn([], [put], timeout_s=1)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
