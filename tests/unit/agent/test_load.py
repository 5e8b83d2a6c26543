"""Load between two samples: unknown at first, then per node and per process group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass

from llmgw.agent.load import LoadSampler
from llmgw.domain.shard import ProfileSpec, ShardReport, ShardSpec, ShardState

SPEC = ShardSpec("r1", "s1", "m", ProfileSpec("p", "command"), "hash", 20_000)


@dataclass
class HandClock:
    """A clock that a test moves."""

    now: float = 1_000.0

    def now_s(self) -> float:
        return self.now


def test_cpu_is_unknown_in_the_first_sample_and_known_in_the_second() -> None:
    clock = HandClock()
    sampler = LoadSampler(clock)
    first = sampler.sample(()).node
    clock.now += 1
    second = sampler.sample(()).node
    assert first.cpu_percent is None
    assert second.cpu_percent is not None
    assert 0 <= second.cpu_percent <= 100
    assert second.memory_used_bytes
    assert second.memory_available_bytes
    assert second.load_1m is not None


def test_a_shards_group_is_summed_with_its_children() -> None:
    # It burns a third of a second, in itself and in a child, then waits to be ended.
    code = (
        "import os, sys, time\n"
        "os.fork()\n"
        "while time.process_time() < 0.15: pass\n"
        "sys.stdout.write('x'); sys.stdout.flush(); time.sleep(60)\n"
    )
    clock = HandClock()
    sampler = LoadSampler(clock)
    with subprocess.Popen(
        [sys.executable, "-c", "input();" + f"exec({code!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        report = ShardReport(SPEC, ShardState.READY, pid=child.pid, process_group=child.pid)
        before = sampler.sample((report,)).shards[0]
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.read(2) == b"xx"
        clock.now += 1
        after = sampler.sample((report,)).shards[0]
        os.killpg(child.pid, signal.SIGKILL)
    assert before.shard_id == "s1"
    assert before.cpu_cores is None
    assert before.memory_bytes
    assert after.cpu_cores is not None
    assert 0.25 <= after.cpu_cores <= 0.6


def test_a_shard_without_a_process_has_no_load() -> None:
    sampler = LoadSampler(HandClock())
    assert sampler.sample((ShardReport(SPEC, ShardState.PENDING),)).shards == ()
