"""The cluster that ping-pong shows: a bandwidth for each host, one latency, one cost per message.

A ping-pong between two hosts takes alpha + size / (the lesser of their bandwidths); a line is fitted through its
times, each weighted by its own length. A host is as fast as with its best partner, or, where it is faster than all
of them, as with all partners at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from farandole.cluster import Cluster
from farandole.cluster.file import ClusterFile, LinkEntry, RankEntry, build

FASTER = 1.1  # by how much a host must be faster with all others at once, to be taken for faster than each of them


@dataclass(frozen=True, slots=True)
class Fit:
    """Seconds, bytes per second (by host), and seconds per byte."""

    latency_s: float
    startup_s: float
    bandwidths: tuple[float, ...]
    reduce_s_per_byte: float

    def cluster(self) -> Cluster:
        """The hosts on a bridge, one link each way."""
        links = [
            LinkEntry(src=f"h{host}", dst="bridge", bandwidth=f"{rate:.0f}B/s", latency=f"{self.latency_s / 2:.9f}s")
            for host, rate in enumerate(self.bandwidths)
        ]
        hosts = [RankEntry(node=f"h{host}") for host in range(len(self.bandwidths))]
        entry = ClusterFile(format="farandole-cluster", version=1, name="rig", rank=hosts, link=links)
        return build(entry).with_costs(self.startup_s, self.reduce_s_per_byte)


def fit(ranks: int, probes: list[dict[str, Any]], reduce_s_per_byte: float) -> Fit:
    """``probes`` have root, peers, size_bytes and times_s, one way; see rank.py."""
    lines: dict[tuple[int, ...], tuple[float, float]] = {}
    for group in sorted({(probe["root"], *probe["peers"]) for probe in probes}):
        mine = [probe for probe in probes if (probe["root"], *probe["peers"]) == group]
        sizes = [probe["size_bytes"] for probe in mine]
        times = [median(probe["times_s"]) for probe in mine]
        slope, head = np.polyfit(sizes, times, 1, w=1 / np.asarray(times))
        lines[group] = float(slope), float(head)
    pairs = {group: line for group, line in lines.items() if len(group) == 2}
    alpha = max(median(head for _, head in pairs.values()), 0.0)
    best = [max(1 / slope for group, (slope, _) in pairs.items() if host in group) for host in range(ranks)]
    together = dict(enumerate(best))
    startups = []
    for (root, *peers), (slope, head) in lines.items():
        if len(peers) > 1:
            together[root] = len(peers) / slope
            startups.append((head - alpha) / (len(peers) - 1))
    startup = min(max(median(startups), 0.0), alpha) if startups else 0.0
    bandwidths = tuple(together[h] if together[h] > FASTER * best[h] else best[h] for h in range(ranks))
    return Fit(alpha - startup, startup, bandwidths, reduce_s_per_byte)
