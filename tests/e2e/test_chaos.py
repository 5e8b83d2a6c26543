"""Random faults under streaming load: whatever dies, the invariants hold and all comes to rest.

The seed is printed. `CHAOS_SEED` names another one (0: a fresh one), `CHAOS_S` makes the storm
longer: `make chaos` explores.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from llmgw.agent.procfs import all_stats, launch_token
from tests.support.chaos import Chaos, under_load
from tests.support.etcd import running_cluster
from tests.support.invariants import violations
from tests.support.programs import cluster
from tests.support.system import paced_model

if TYPE_CHECKING:
    from pathlib import Path

STORM_S = float(os.environ.get("CHAOS_S", "12"))
SEED = int(os.environ.get("CHAOS_SEED", "1")) or random.randrange(1, 1_000_000)
REST_S = 45.0
MODELS = {"one": 1, "two": 2}
CLIENTS = 3

pytestmark = pytest.mark.alone


async def test_whatever_dies_the_invariants_hold(tmp_path: Path) -> None:
    print(f"seed {SEED}")  # noqa: T201 - to run the same faults again
    with running_cluster(tmp_path / "etcd", size=3) as etcd:
        async with cluster(tmp_path, etcd.endpoints) as programs:
            chaos = Chaos(programs, etcd, SEED)
            await chaos.start()
            models = [
                paced_model(name, replicas=replicas, args=("--token-interval-s", "0.05"))
                for name, replicas in MODELS.items()
            ]
            await chaos.apply(*models)
            await chaos.at_rest(sum(MODELS.values()), REST_S)
            await chaos.routed(MODELS)
            await under_load(chaos, MODELS, CLIENTS, lambda: survive(chaos))
            assert chaos.failed == [], told(chaos)
            assert chaos.streamed > 0
            assert violations(await chaos.recorded(MODELS)) == [], told(chaos)


async def survive(chaos: Chaos) -> None:
    """The storm, then rest: what the leader says is what runs, and nothing else does."""
    await chaos.storm(STORM_S)
    status = await chaos.at_rest(sum(MODELS.values()), REST_S)
    said = {(r["pid"], r["process_start_ticks"]) for r in status["replicas"]}
    assert engines_in(chaos.cluster.folder) == said, told(chaos)


def engines_in(folder: Path) -> set[tuple[int, int]]:
    """Every process that carries a launch token of this folder's agents, by pid and start."""
    owners = {path.read_text() for path in folder.glob("node-*/id")}
    tokens = ((stat, launch_token(stat.pid) or "") for stat in all_stats() if stat.alive)
    return {
        (stat.pid, stat.start_ticks) for stat, token in tokens if token.partition(":")[0] in owners
    }


def told(chaos: Chaos) -> str:
    """What was done, for whoever reads a failure."""
    return "\n".join([f"seed {SEED}", *chaos.faults, *chaos.failed])
