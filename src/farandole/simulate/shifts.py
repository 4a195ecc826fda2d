"""Rounds in which every rank sends to the rank so many places on, for many distances at once.

On a torus the routes follow from arithmetic. Elsewhere, a cluster that looks the same when every rank moves
``period`` places is folded: links that come to lie on each other by such moves are one, and the messages of the
first ``period`` ranks stand for all. Distances that agree modulo the period are then alike, but for those of less
than a period.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from farandole.cluster.model import Cluster
from farandole.cluster.routing import Mesh, Torus
from farandole.errors import UnsupportedError
from farandole.simulate.fold import fold
from farandole.simulate.pattern import Floats, network
from farandole.simulate.sharing import drain_times

LARGEST_FOLD = 1 << 23  # messages, over all distances that are not alike

Longs = NDArray[np.int64]


def on_torus(cluster: Cluster, router: Torus, distances: Longs, size: float) -> tuple[float, Floats]:
    """Seconds in all, and the bytes on each link; ``size`` is the bytes of a message.

    Along a side, all ranks of a line move equally far, by the distance's digit or, where the digits below it carry,
    by one more; so as many messages cross each link of the line as each of them crosses links. The line with the
    most sets the time; where two lines differ, the latency is that of the longest way there could be.
    """
    most, hops = np.zeros(len(distances)), np.zeros(len(distances))
    link_bytes = np.zeros(cluster.link_count)
    stride = 1
    for side, forward, backward in zip(router.sides, router.forward, router.backward, strict=True):
        carries = distances % stride / stride  # the part of the ranks whose lower digits carry
        longest = np.zeros(len(distances))
        for move, part in ((distances // stride % side, 1 - carries), ((distances // stride + 1) % side, carries)):
            far = np.minimum(move, side - move)
            longest = np.maximum(longest, far * (part > 0))
            for links, goes in ((forward, move <= side - move), (backward, move > side - move)):
                if side > 1:
                    link_bytes[links] += float((far * part)[goes].sum()) * size
        most = np.maximum(most, longest)
        hops += longest
        stride *= side
    if not cluster.link_count:
        return 0.0, link_bytes
    times = most * size / cluster.bandwidth[0] + hops * cluster.latency_s[0] + cluster.startup_s
    return float(times.sum()), link_bytes


def by_period(cluster: Cluster, distances: Longs, size: float) -> tuple[float, Floats]:
    """The same for any cluster with a period."""
    n, period = cluster.ranks, cluster.period
    near = (np.minimum(distances, n - distances) < period) | isinstance(cluster.router, Mesh)
    keys = np.stack([distances % period if period else distances, np.where(near, distances, -1)], axis=1)
    _, first, alike = np.unique(keys, axis=0, return_index=True, return_counts=True)
    if not period or period * len(first) > LARGEST_FOLD:
        raise UnsupportedError(
            f"{cluster.name} repeats itself too seldom for {n:,} ranks to exchange pairwise without listing every"
            " round: use a cluster of more, smaller hosts, or fewer ranks"
        )
    folded = fold(cluster, period)
    net = network(cluster, fold=folded)
    capacity, none = net.capacity, net.none
    limited = np.isfinite(capacity)
    source = np.arange(period, dtype=np.int32)
    time_s, folded_bytes = 0.0, np.zeros(none + 1)
    for i, times in zip(first.tolist(), alike.tolist(), strict=True):
        routes = net.routes(source, ((source + distances[i]) % n).astype(np.int32))
        limit = net.bandwidth[routes].min(axis=1)
        users = np.bincount(routes.ravel(), minlength=none + 1)
        if users[limited].max(initial=0) <= 1:
            drained = size / limit
        else:
            drained = drain_times(np.zeros(period), np.full(period, size), routes, capacity, limit)
        time_s += times * (cluster.startup_s + float((drained + net.latency_s[routes].sum(axis=1)).max()))
        folded_bytes += times * size * users
    return time_s, folded_bytes[folded.link]
