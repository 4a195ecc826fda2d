from __future__ import annotations

import resource
from pathlib import Path

import pytest

from farandole.run.limits import Limit, for_mapping, for_shared_memory

GIB = 1 << 30


def machine(folder: Path, files: dict[str, str]) -> Path:
    """A /proc, and cgroups beside it, made of ``files``; returns the /proc."""
    memory = (
        "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\nHugePages_Total: 0\nSwapFree: 1048576 kB\n"
    )
    for name, text in {"proc/meminfo": memory, "proc/self/statm": "2560 100 50 1 0 300 0\n", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("ROOT", str(folder)), encoding="utf-8")
    return folder / "proc"


def test_a_machine_leaves_its_available_memory_and_its_swap(tmp_path: Path) -> None:
    assert for_shared_memory(machine(tmp_path, {})) == [Limit(9 * GIB, "this machine's free memory and swap")]


def test_every_cgroup_of_version_2_up_to_the_root_may_set_a_limit(tmp_path: Path) -> None:
    proc = machine(
        tmp_path,
        {
            "proc/self/mountinfo": "42 32 0:38 / ROOT/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            "proc/self/cgroup": "0::/batch/job7/step0\n",
            "cgroup/batch/memory.max": f"{4 * GIB}\n",
            "cgroup/batch/memory.current": f"{GIB}\n",
            "cgroup/batch/memory.stat": f"anon 5\ninactive_file {GIB // 2}\nactive_file 7\n",
            "cgroup/batch/job7/memory.max": "max\n",
            "cgroup/batch/job7/memory.current": "1\n",
            "cgroup/batch/job7/step0/memory.max": f"{GIB}\n",
            "cgroup/batch/job7/step0/memory.current": f"{2 * GIB}\n",
        },
    )
    assert for_shared_memory(proc)[1:] == [
        Limit(0, f"the memory limit of the cgroup {tmp_path}/cgroup/batch/job7/step0"),
        Limit(7 * GIB // 2, f"the memory limit of the cgroup {tmp_path}/cgroup/batch"),
    ]


def test_a_cgroup_of_version_1_sets_a_limit_unless_it_is_the_largest_number(tmp_path: Path) -> None:
    proc = machine(
        tmp_path,
        {
            "proc/self/mountinfo": "34 31 0:32 / ROOT/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
            "35 31 0:32 / ROOT/cgroup/memory rw - cgroup cgroup rw,memory\n",
            "proc/self/cgroup": "5:cpu:/a\n4:memory:/docker/a\n0::/\n",
            "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "cgroup/memory/memory.usage_in_bytes": "1\n",
            "cgroup/memory/docker/a/memory.limit_in_bytes": f"{2 * GIB}\n",
            "cgroup/memory/docker/a/memory.usage_in_bytes": f"{GIB}\n",
            "cgroup/memory/docker/a/memory.stat": "inactive_file 99\ntotal_inactive_file 1024\n",
            "cgroup/cpu/a/memory.limit_in_bytes": "1\n",
            "cgroup/cpu/a/memory.usage_in_bytes": "0\n",
        },
    )
    [_, limit] = for_shared_memory(proc)
    assert limit == Limit(GIB + 1024, f"the memory limit of the cgroup {tmp_path}/cgroup/memory/docker/a")


def test_in_a_container_the_mount_may_show_only_its_own_part_of_the_tree(tmp_path: Path) -> None:
    proc = machine(
        tmp_path,
        {
            "proc/self/mountinfo": "35 31 0:32 /docker/a ROOT/cgroup rw - cgroup cgroup rw,memory\n",
            "proc/self/cgroup": "4:memory:/docker/a/inner\n",
            "cgroup/memory.limit_in_bytes": f"{3 * GIB}\n",
            "cgroup/memory.usage_in_bytes": f"{GIB}\n",
            "cgroup/inner/memory.limit_in_bytes": f"{2 * GIB}\n",
            "cgroup/inner/memory.usage_in_bytes": f"{GIB}\n",
        },
    )
    assert [limit.available_bytes for limit in for_shared_memory(proc)[1:]] == [GIB, 2 * GIB]


@pytest.mark.parametrize("text", ["", "x", "0::", "4:memory", "a b c\n\n", "42 32 0:38 / /x rw - cgroup2"])
def test_what_cannot_be_read_sets_no_limit(tmp_path: Path, text: str) -> None:
    proc = machine(tmp_path, {"proc/self/mountinfo": text, "proc/self/cgroup": text, "proc/meminfo": text})
    assert for_shared_memory(proc) == []


def test_the_limits_of_the_process_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = machine(tmp_path, {})
    assert for_mapping(proc) == []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (GIB, resource.RLIM_INFINITY))
    used = 2560 * resource.getpagesize()
    assert for_mapping(proc) == [Limit(GIB - used, "this process's limit on address space (ulimit -v)")]
    assert for_shared_memory(proc)[-1] == Limit(GIB, "this process's limit on file sizes (ulimit -f)")


def test_this_machine_has_memory_left() -> None:
    assert all(limit.available_bytes > 0 for limit in for_shared_memory())
    assert "this machine's free memory and swap" in [limit.what for limit in for_shared_memory()]
