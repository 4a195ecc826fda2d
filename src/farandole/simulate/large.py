"""Worlds too large to list, priced by symmetry: a round between all pairs, and rounds that differ in distance only.

What is told in short (see :mod:`farandole.simulate.short`) as equal rounds goes through the fast engine; this is
for the rest. Chunks are taken to be equal here (size / chunks, not a whole number of elements).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from farandole.cluster.model import Cluster
from farandole.cluster.routing import Torus
from farandole.errors import UnsupportedError
from farandole.simulate.pattern import Floats, Network, Pattern, pattern
from farandole.simulate.sharing import drain_times
from farandole.simulate.shifts import by_period, on_torus
from farandole.simulate.short import Everyone, Same, Shifts


@dataclass(frozen=True, slots=True, eq=False)
class Price:
    """What rounds priced by symmetry come to."""

    time_s: float
    rounds: int
    transfers: int
    link_bytes: Floats
    note: str = ""


def groups(net: Network, parts: Sequence[Same], chunk_bytes: float) -> Iterator[tuple[Pattern, int]]:
    """The patterns of rounds that repeat, with how often each does."""
    for part in parts:
        size = np.multiply(part.round.count, chunk_bytes, dtype=np.float64)
        yield pattern(net, part.round.src, part.round.dst, size, size * part.round.reduce), part.repeat


def everyone(cluster: Cluster, part: Everyone, chunk_bytes: float) -> Price:
    """A round between all pairs, seen from rank 0: all ranks look alike, so its peers' links look like its own.

    All transfers start at once, and those that cross the same kinds of links are equally fast. With a start-up
    cost and one kind of route, the n-1 messages of a rank come one after another, and share its way out.
    """
    if not cluster.alike:
        raise UnsupportedError(
            f"{cluster.name} looks different from different ranks, so an exchange between all pairs of"
            f" {cluster.ranks:,} ranks would have to be listed: use a regular cluster, or fewer ranks"
        )
    n, size = cluster.ranks, part.count * chunk_bytes
    crossed = cluster.crossings(np.zeros(n - 1, np.int32), np.arange(1, n, dtype=np.int32))
    ways, members = np.unique(crossed, axis=0, return_counts=True)
    of_kind = np.bincount(cluster.link_kind)
    link_bytes = (crossed.sum(axis=0) * (n * size) / of_kind)[cluster.link_kind]
    first = np.unique(cluster.link_kind, return_index=True)[1]
    latency = ways @ cluster.latency_s[first]
    startup, reduce = cluster.startup_s, cluster.reduce_s_per_byte * size * part.reduce
    drained = _shared_out(cluster, ways, members, first, size)
    note = ""
    if startup and len(ways) > 1:
        drained = drained + (n - 1) * startup
        note = "the messages of a round between all pairs are taken to move only after all of them were posted"
    elif startup:
        drained = _in_turn(cluster, ways[0], first, size).max(keepdims=True)
    arrivals = drained + latency
    order = np.argsort(arrivals, kind="stable")
    waiting = np.cumsum(members[order][::-1])[::-1] * reduce  # what is left to reduce from each arrival on
    end = float((arrivals[order] + waiting).max()) if reduce else float(arrivals.max())
    if reduce and startup and len(ways) == 1:
        arrived = np.sort(_in_turn(cluster, ways[0], first, size)) + latency[0]
        end = float((arrived + reduce * np.arange(n - 1, 0, -1)).max())
    return Price(end, 1, n * (n - 1), link_bytes, note)


def _shared_out(cluster: Cluster, ways: Any, members: Any, first: Any, size: float) -> Floats:
    """When the last byte of each way's transfers has left, all having started at 0: shape (ways,).

    ``ways`` has shape (ways, kinds): how often a way crosses links of each kind, of which ``first`` are the first.
    """
    capacity = np.where(cluster.shared[first], cluster.bandwidth[first], np.inf)
    limit = np.where(ways > 0, cluster.bandwidth[first], np.inf).min(axis=1)
    load = ways * members[:, None] * cluster.ranks / np.bincount(cluster.link_kind)  # transfers on a link of each kind
    drained, left, now = np.zeros(len(ways)), np.full(len(ways), size), 0.0
    active = np.ones(len(ways), np.bool_)
    while active.any():
        rates = _rates(load, capacity, limit, active)
        ends = np.where(active, now + left / rates, np.inf)
        after = ends.min()
        over = ends <= after * (1 + 1e-12)
        drained[over] = after
        left = left - np.where(active, rates * (after - now), 0.0)
        active, now = active & ~over, after
    return drained


def _rates(load: Any, capacity: Any, limit: Any, active: Any) -> Floats:
    """Max-min fair rates of the ways that are active, by progressive filling; 1 for the others."""
    rates = np.ones(len(load))
    open_, left = active.copy(), capacity.copy()
    while open_.any():
        users = load[open_].sum(axis=0)
        share = np.divide(left, users, out=np.full(len(left), np.inf), where=users > 0)
        level = min(share.min(), limit[open_].min())
        full = share <= level * (1 + 1e-12)
        fixed = open_ & ((load[:, full] > 0).any(axis=1) | (limit <= level * (1 + 1e-12)))
        rates[fixed] = level
        left = np.maximum(left - load[fixed].sum(axis=0) * level, 0)
        open_ &= ~fixed
    return rates


def _in_turn(cluster: Cluster, way: Any, first: Any, size: float) -> Floats:
    """Each of a rank's messages, posted one after another, all on one way: when it has drained, shape (n-1,)."""
    n, of_kind = cluster.ranks, np.bincount(cluster.link_kind)
    kinds = np.flatnonzero(way)
    posted = np.multiply(np.arange(1, n), cluster.startup_s, dtype=np.float64)
    limit = float(cluster.bandwidth[first[kinds]].min())
    shares = [
        float(cluster.bandwidth[first[kind]] * of_kind[kind] / (n * way[kind]))
        for kind in kinds
        if cluster.shared[first[kind]]
    ]
    if not shares or limit < min(shares) * (1 - 1e-12):
        return np.asarray(posted + size / limit, np.float64)
    capacity = np.array([min(shares), np.inf])
    return drain_times(posted, np.full(n - 1, size), np.zeros((n - 1, 1), np.int32), capacity, np.full(n - 1, np.inf))


def shifts(cluster: Cluster, part: Shifts, chunk_bytes: float) -> Price:
    """Rounds that differ in distance only, one after another; see :mod:`farandole.simulate.shifts`."""
    distances = np.array(part.distances, np.int64)
    if isinstance(cluster.router, Torus):
        time_s, link_bytes = on_torus(cluster, cluster.router, distances, chunk_bytes)
    else:
        time_s, link_bytes = by_period(cluster, distances, chunk_bytes)
    note = "" if cluster.period == 1 else "rounds are taken to follow each other without overlap"
    return Price(time_s, len(distances), cluster.ranks * len(distances), link_bytes, note)
