"""How much memory a process here may still take, and what sets that limit.

Linux grants memory first and looks for it later: a shared segment that does not fit is paid for by the OOM killer,
or by SIGBUS in whoever touches it. So everything that could stand in the way is read beforehand: the machine's free
memory, the memory cgroups (version 1 and 2) of a container or a batch job, and this process's own limits.

All sizes are bytes. What cannot be read (no such file, no such cgroup) sets no limit.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_UNLIMITED = 2**60  # cgroup version 1 writes 'no limit' as a number near 2^63


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing that bounds memory: how many bytes are left under it, and what it is, in words."""

    available_bytes: int
    what: str


def for_shared_memory(proc: Path = PROC) -> list[Limit]:
    """What bounds the memory that this process may put into a shared segment."""
    return [*_machine(proc), *_cgroups(proc), *_file_size()]


def for_mapping(proc: Path = PROC) -> list[Limit]:
    """What bounds the size of a mapping that this process may make."""
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft == resource.RLIM_INFINITY:
        return []
    used = int(_read(proc / "self/statm").split()[0] or 0) * resource.getpagesize()
    return [Limit(max(0, soft - used), "this process's limit on address space (ulimit -v)")]


def _file_size() -> Iterator[Limit]:
    soft = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if soft != resource.RLIM_INFINITY:
        yield Limit(soft, "this process's limit on file sizes (ulimit -f)")


def _machine(proc: Path) -> Iterator[Limit]:
    kilobytes = _table(_read(proc / "meminfo").replace(":", "").replace(" kB", ""))
    if "MemAvailable" in kilobytes:
        free = 1024 * (kilobytes["MemAvailable"] + kilobytes.get("SwapFree", 0))
        yield Limit(free, "this machine's free memory and swap")


def _cgroups(proc: Path) -> Iterator[Limit]:
    """Every memory cgroup that this process is in, from its own up to the root: each may set a limit."""
    for mount, shown, version in _mounts(proc):
        path = _path_in(proc, version)
        if path is None:
            continue
        # In a container the mount may show only a part of the tree, while the path counts from the tree's root.
        inside = path.relative_to(shown) if path.is_relative_to(shown) else Path()
        folders = [mount / inside, *(mount / parent for parent in inside.parents)]
        for folder in dict.fromkeys(folders):
            left = _left_in(folder, version)
            if left is not None:
                yield Limit(left, f"the memory limit of the cgroup {folder}")


def _left_in(folder: Path, version: int) -> int | None:
    limit, usage = (
        ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    with contextlib.suppress(ValueError):  # 'max', or no such file
        most, used = int(_read(folder / limit)), int(_read(folder / usage))
        # Pages of files that nobody has used lately are given up on demand.
        statistics = _table(_read(folder / "memory.stat"))
        spare = statistics.get("inactive_file" if version == 2 else "total_inactive_file", 0)
        return max(0, most - used + spare) if most < _UNLIMITED else None
    return None


def _mounts(proc: Path) -> Iterator[tuple[Path, Path, int]]:
    """Where memory cgroups are mounted, which part of the tree is shown there, and the version."""
    for line in _read(proc / "self/mountinfo").splitlines():
        fields, _, tail = line.partition(" - ")
        columns, kind = fields.split(), tail.split()
        if len(columns) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            yield Path(columns[4]), Path(columns[3]), 2
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            yield Path(columns[4]), Path(columns[3]), 1


def _path_in(proc: Path, version: int) -> Path | None:
    for line in _read(proc / "self/cgroup").splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if (version == 2 and number == "0") or (version == 1 and "memory" in controllers.split(",")):
            return Path(path)
    return None


def _table(text: str) -> dict[str, int]:
    """Lines of a name and a number."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
