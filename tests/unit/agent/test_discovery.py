"""What a node is: limits of both kinds of cgroup, and facts that are there or not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil

from llmgw.agent.discovery import (
    Discovery,
    cpu_count,
    interface_of,
    memory_limit_bytes,
    memory_total_bytes,
    memory_used_bytes,
)
from llmgw.agent.engines import installed_engines

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def v2(tmp_path: Path) -> tuple[Path, Path]:
    write(tmp_path / "self", "0::/outer/inner\n")
    write(tmp_path / "fs/outer/inner/memory.max", "max\n")
    return tmp_path / "fs", tmp_path / "self"


def v1(tmp_path: Path) -> tuple[Path, Path]:
    write(tmp_path / "self", "5:memory:/a\n4:cpu,cpuacct:/a/b\n1:name=systemd:/x\n0::/\n")
    (tmp_path / "fs/cpu,cpuacct/a/b").mkdir(parents=True)
    (tmp_path / "fs/memory/a").mkdir(parents=True)
    return tmp_path / "fs", tmp_path / "self"


def test_v2_the_tightest_memory_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    root, own = v2(tmp_path)
    assert memory_limit_bytes(root, own) is None
    write(root / "outer/memory.max", f"{4 * GIB}\n")
    assert memory_limit_bytes(root, own) == 4 * GIB
    write(root / "outer/inner/memory.max", f"{2 * GIB}\n")
    assert memory_limit_bytes(root, own) == 2 * GIB


def test_v1_no_limit_is_a_huge_number_and_means_none(tmp_path: Path) -> None:
    root, own = v1(tmp_path)
    write(root / "memory/a/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_limit_bytes(root, own) is None
    write(root / "memory/memory.limit_in_bytes", f"{3 * GIB}\n")
    assert memory_limit_bytes(root, own) == 3 * GIB


def test_v2_a_cpu_quota_is_rounded_up(tmp_path: Path) -> None:
    root, own = v2(tmp_path)
    everything = len(os.sched_getaffinity(0))
    write(root / "outer/cpu.max", "max 100000\n")
    assert cpu_count(root, own) == everything
    write(root / "outer/cpu.max", "50000 100000\n")
    assert cpu_count(root, own) == 1
    write(root / "outer/cpu.max", "100000000 100000\n")
    assert cpu_count(root, own) == everything


def test_v1_a_cpu_quota_counts_and_minus_one_is_none(tmp_path: Path) -> None:
    root, own = v1(tmp_path)
    write(root / "cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n")
    write(root / "cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n")
    assert cpu_count(root, own) == len(os.sched_getaffinity(0))
    write(root / "cpu,cpuacct/a/b/cpu.cfs_quota_us", "90000\n")
    assert cpu_count(root, own) == 1


def test_memory_used_leaves_out_caches_that_can_go(tmp_path: Path) -> None:
    root, own = v2(tmp_path)
    write(root / "outer/inner/memory.current", "1000\n")
    write(root / "outer/inner/memory.stat", "anon 500\ninactive_file 300\n")
    assert memory_used_bytes(root, own) == 700


def test_memory_used_under_v1(tmp_path: Path) -> None:
    root, own = v1(tmp_path)
    write(root / "memory/a/memory.usage_in_bytes", "1000\n")
    write(root / "memory/a/memory.stat", "cache 1\ntotal_inactive_file 100\n")
    assert memory_used_bytes(root, own) == 900


def test_a_machine_without_cgroups_has_no_limits(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path, tmp_path / "none") is None
    assert memory_used_bytes(tmp_path, tmp_path / "none") is None
    assert cpu_count(tmp_path, tmp_path / "none") == len(os.sched_getaffinity(0))


def test_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.77") == ""


def test_the_facts_of_this_node(tmp_path: Path) -> None:
    discovery = Discovery(
        address="127.0.0.1",
        pool="blue",
        labels={"rack": "7"},
        state_dir=tmp_path,
        engines=installed_engines(),
    )
    facts = discovery.facts(problems=("something",))
    assert facts.management_address == "127.0.0.1"
    assert (facts.pool, facts.labels, facts.problems) == ("blue", {"rack": "7"}, ("something",))
    assert 1 <= facts.cpus <= len(os.sched_getaffinity(0))
    assert facts.memory_total_bytes == memory_total_bytes() <= psutil.virtual_memory().total
    assert facts.storage[0].path == str(tmp_path)
    assert 0 < facts.storage[0].free_bytes <= facts.storage[0].total_bytes
    assert "command" in {engine.engine for engine in facts.engines}
    assert len(facts.boot_id) == 36
