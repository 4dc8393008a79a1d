"""This process's share of memory, from made-up /proc and cgroup trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from earthsciio.memory import LOCAL_RANKS, default_max_bytes, local_ranks, memory_limit

GB = 2**30


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": f"MemTotal: {64 * 2**20} kB\nMemFree: 1 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_cgroup_it_is_the_nodes_memory(tmp_path):
    assert memory_limit(tree(tmp_path, {})) == 64 * GB


@pytest.mark.parametrize("where", ["job/step", "job", "."])
@pytest.mark.parametrize("name", ["memory.max", "memory.high"])
def test_cgroup_v2_limits_hold_at_every_level(tmp_path, where, name):
    files = {
        "proc/self/cgroup": "0::/job/step\n",
        "sys/fs/cgroup/job/step/memory.max": "max\n",
        f"sys/fs/cgroup/{where}/{name}": f"{8 * GB}\n",
    }
    assert memory_limit(tree(tmp_path, files)) == 8 * GB


def test_cgroup_v1(tmp_path):
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/slurm/job_1\n",
        "sys/fs/cgroup/memory/slurm/job_1/memory.limit_in_bytes": f"{2**63 - 4096}\n",
        "sys/fs/cgroup/memory/slurm/memory.limit_in_bytes": f"{4 * GB}\n",
    }
    assert memory_limit(tree(tmp_path, files)) == 4 * GB


def test_inside_a_container_the_mount_itself_is_looked_at(tmp_path):
    files = {"proc/self/cgroup": "0::/outside/only\n", "sys/fs/cgroup/memory.max": f"{GB}\n"}
    assert memory_limit(tree(tmp_path, files)) == GB


@pytest.mark.parametrize("name", LOCAL_RANKS)
def test_launchers_say_how_many_ranks_share_the_node(name):
    assert local_ranks({name: "4"}) == 4


def test_slurm_writes_repeats_and_nobody_writes_nothing():
    assert local_ranks({"SLURM_NTASKS_PER_NODE": "4(x2)"}) == 4
    assert local_ranks({}) == 1
    assert local_ranks({"MPI_LOCALNRANKS": "", "PMI_LOCAL_SIZE": "0"}) == 1


# spec: G5.4
def test_the_default_budget_is_half_of_a_ranks_share(tmp_path):
    assert default_max_bytes(tree(tmp_path, {}), {"MPI_LOCALNRANKS": "4"}) == 8 * GB
    assert default_max_bytes(tree(tmp_path, {}), {}) == 32 * GB


def test_on_this_machine_it_is_something():
    assert 0 < default_max_bytes() < 2**50
