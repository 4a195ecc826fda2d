"""The machine that was measured: what it is, and how fast it copies memory.

A copy moves a byte by reading it and writing it once; its speed is bytes copied per second. In cache, both buffers
together fit the second-level cache; out of cache, they are several times larger than the last level. The speed of all
cores at once, each with buffers of its own, is what bounds collectives of long messages.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_IN_CACHE_BYTES = 128 << 10
_OUT_OF_CACHE_BYTES = 128 << 20
_LEAST_S = 0.15
_TRIES = 5


def facts() -> dict[str, Any]:
    """CPU, cores, memory, kernel, versions, load, and the speed of memory."""
    cores = len(os.sched_getaffinity(0))
    return {
        "cpu": _first_value(Path("/proc/cpuinfo"), "model name") or platform.processor() or platform.machine(),
        "cores": cores,
        "cache_bytes": _caches(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "load_average": os.getloadavg()[0],
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "copy": {
            "in_cache": copy_speed(_IN_CACHE_BYTES, 1),
            "out_of_cache": copy_speed(_OUT_OF_CACHE_BYTES, 1),
            "out_of_cache_all_cores": copy_speed(_OUT_OF_CACHE_BYTES, cores),
        },
    }


def copy_speed(size_bytes: int, threads: int) -> float:
    """Bytes copied per second by so many threads at once: the best of several tries."""
    pairs = [(np.ones(size_bytes, np.uint8), np.zeros(size_bytes, np.uint8)) for _ in range(threads)]
    times = max(1, int(_LEAST_S / _TRIES / _copied_s(pairs, 1)))
    return max(threads * times * size_bytes / _copied_s(pairs, times) for _ in range(_TRIES))


def moved_bytes(collective: str, ranks: int, size_bytes: int) -> float:
    """The least that must be moved, in bytes copied: every rank reads its input and writes its result.

    A byte that is read, or written, is half a byte copied. What passes between the ranks comes on top, unless it
    stays in cache.

    >>> moved_bytes("all_reduce", 2, 100), moved_bytes("all_gather", 2, 100)
    (200.0, 150.0)
    """
    part = 1.0 if collective in {"all_reduce", "all_to_all"} else 1 / ranks
    return ranks * size_bytes * (1 + part) / 2


def _copied_s(pairs: list[tuple[NDArray[np.uint8], NDArray[np.uint8]]], times: int) -> float:
    """How long the threads take for so many copies each."""
    begin = threading.Barrier(len(pairs) + 1)

    def copy(source: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
        begin.wait()
        for _ in range(times):
            np.copyto(target, source)

    workers = [threading.Thread(target=copy, args=pair) for pair in pairs]
    for worker in workers:
        worker.start()
    begin.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - start


def _first_value(path: Path, key: str) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def _caches() -> dict[str, int]:
    """The size of each level of the first core's cache, as far as the system says."""
    names = {"L1d": "SC_LEVEL1_DCACHE_SIZE", "L2": "SC_LEVEL2_CACHE_SIZE", "L3": "SC_LEVEL3_CACHE_SIZE"}
    known = {level: os.sysconf(name) for level, name in names.items() if name in os.sysconf_names}
    return {level: size for level, size in known.items() if size > 0}
