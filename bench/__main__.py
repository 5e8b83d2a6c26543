"""`make bench`: every figure, or the ones named: `make bench ARGS=router`."""

from __future__ import annotations

import asyncio
import sys

from bench import router, system
from bench.figures import machine

BENCHES = {"system": system.run, "router": router.run}


def main() -> None:
    names = sys.argv[1:] or list(BENCHES)
    if unknown := [name for name in names if name not in BENCHES]:
        sys.exit(f"error: no such bench: {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    print(f"on {machine()}")
    for name in names:
        asyncio.run(BENCHES[name]())


if __name__ == "__main__":
    main()
