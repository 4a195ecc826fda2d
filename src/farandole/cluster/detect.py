"""What this machine is, as a cluster: a rank per core that this process may use, sharing the memory's bandwidth.

The bandwidth is measured with a copy that does not fit the caches; it is rough, and meant as a start for a file of
one's own. Between ranks of one host all data goes through memory, so that is the one link that all share.
"""

from __future__ import annotations

import os
import platform
import time

import numpy as np

from farandole.cluster.file import ClusterFile, LinkEntry, RankEntry, build
from farandole.cluster.model import Cluster

_BYTES = 64 * 2**20


def copy_bandwidth(repeats: int = 5) -> float:
    """The best of a few copies of 64 MiB on one core, in bytes per second."""
    source, target = np.ones(_BYTES // 8), np.zeros(_BYTES // 8)
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - begin)
    return _BYTES / best


def add_bandwidth(repeats: int = 5) -> float:
    """The same for adding float32 to float32."""
    source, target = np.ones(_BYTES // 4, np.float32), np.zeros(_BYTES // 4, np.float32)
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        np.add(target, source, out=target)
        best = min(best, time.perf_counter() - begin)
    return _BYTES / best


def detect() -> tuple[ClusterFile, Cluster]:
    """This machine as the contents of a file, and as a cluster."""
    cores = len(os.sched_getaffinity(0))
    bandwidth, adding = copy_bandwidth(), add_bandwidth()
    host = platform.node() or "host"
    entry = ClusterFile(
        format="farandole-cluster",
        version=1,
        name=f"{host}: {cores} cores",
        startup="1us",
        reduce=f"{adding / 1e9:.3g}GB/s",
        rank=[RankEntry(node="core{c}", host=host, repeat={"c": cores})],
        link=[LinkEntry(src="core{c}", dst="memory", bandwidth=f"{bandwidth / 1e9:.3g}GB/s", repeat={"c": cores})],
    )
    return entry, build(entry)
