"""Worlds too large to list: rounds told in a few words, and priced by symmetry.

A ring of 100,000 ranks has 20 billion transfers, but its rounds are all the same; an exchange between all pairs
is one round of 10 billion. So the algorithms whose list of transfers grows with the square of the ranks are told
here once more, in short: which rounds, how often. A test compares each of these with the list. All other
algorithms are taken round by round from their own generator.

Chunks are taken to be equal here (size / chunks, not a whole number of elements).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from farandole.algorithms.registry import Option, Ranks, check_order
from farandole.cluster.model import Cluster
from farandole.errors import UnsupportedError
from farandole.schedule import Round
from farandole.simulate.fairness import drain_times
from farandole.simulate.pattern import Floats, Network, Pattern, network, pattern
from farandole.simulate.rounds import step
from farandole.simulate.settings import Settings


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """``repeat`` rounds like ``round``, of which only ``src``, ``dst``, ``count`` and ``reduce`` matter."""

    round: Round
    repeat: int


@dataclass(frozen=True, slots=True)
class Everyone:
    """One round in which every rank sends ``count`` chunks to every other."""

    count: int
    reduce: bool


@dataclass(frozen=True, slots=True)
class Shifts:
    """Rounds in which every rank sends ``count[i]`` transfers of a chunk to the rank ``distance[i]`` places on."""

    distances: range | tuple[int, ...]
    counts: tuple[int, ...] = ()


Part = Same | Everyone | Shifts
Short = Callable[..., Iterator[Part]]


def _along(n: int, order: Ranks, reduce: bool, both: bool) -> Round:
    rank = np.fromiter(check_order(n, order), np.int32, n)
    src, dst = rank, np.roll(rank, -1)
    if both:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    return Round(src=src, dst=dst, reduce=reduce)


def _ring(*reduces: bool, both: bool = False) -> Short:
    def parts(n: int, order: Ranks = ()) -> Iterator[Part]:
        for reduce in reduces if n > 1 else ():
            yield Same(_along(n, order, reduce, both), n - 1)

    return parts


def _direct(*reduces: bool) -> Short:
    def parts(n: int) -> Iterator[Part]:
        for reduce in reduces if n > 1 else ():
            yield Everyone(1, reduce)

    return parts


def _pairwise(n: int) -> Iterator[Part]:
    yield Shifts(range(1, n))


def _bruck(n: int) -> Iterator[Part]:
    steps = [1 << k for k in range((n - 1).bit_length())]
    whole = [n // (2 * step) * step + max(0, n % (2 * step) - step) for step in steps]
    yield Shifts(tuple(steps), tuple(whole))


SHORT: Mapping[tuple[str, str], Short] = {
    ("all_reduce", "ring"): _ring(True, False),
    ("reduce_scatter", "ring"): _ring(True),
    ("all_gather", "ring"): _ring(False),
    ("all_reduce", "bidirectional_ring"): _ring(True, False, both=True),
    ("reduce_scatter", "bidirectional_ring"): _ring(True, both=True),
    ("all_gather", "bidirectional_ring"): _ring(False, both=True),
    ("all_reduce", "direct"): _direct(True, False),
    ("all_reduce", "naive"): _direct(True),
    ("reduce_scatter", "direct"): _direct(True),
    ("all_gather", "direct"): _direct(False),
    ("all_to_all", "direct"): _direct(False),
    ("all_to_all", "pairwise"): _pairwise,
    ("all_to_all", "bruck"): _bruck,
}


@dataclass(frozen=True, slots=True, eq=False)
class Price:
    """What rounds priced by symmetry come to."""

    time_s: float
    rounds: int
    transfers: int
    link_bytes: Floats
    note: str = ""


def parts_of(collective: str, name: str, n: int, options: Mapping[str, Option]) -> list[Part] | None:
    """The algorithm in short, or None if it has no short form."""
    short = SHORT.get((collective, name))
    arguments: dict[str, Any] = dict(options)
    return None if short is None else list(short(n, **arguments))


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
    routes = cluster.routes(np.zeros(n - 1, np.int32), np.arange(1, n, dtype=np.int32))
    kinds = int(cluster.link_kind.max(initial=0)) + 1
    kind_routes = np.where(routes < 0, kinds, cluster.link_kind[routes]).astype(np.int32)
    ways, way, members = np.unique(kind_routes, axis=0, return_inverse=True, return_counts=True)
    of_kind = np.bincount(cluster.link_kind, minlength=kinds)
    crossings = np.bincount(kind_routes.ravel(), minlength=kinds + 1)[:kinds] * n / of_kind
    link_bytes = (crossings * size)[cluster.link_kind]
    representative = np.array([routes[np.flatnonzero(way.ravel() == w)[0]] for w in range(len(ways))])
    net = network(cluster)
    table = np.where(representative < 0, net.none, representative)
    latency = net.latency_s[table].sum(axis=1)
    startup, reduce = cluster.startup_s, cluster.reduce_s_per_byte * size * part.reduce
    drained = _shared_out(cluster, ways, members, of_kind, size)
    note = ""
    if startup and len(ways) > 1:
        drained = drained + (n - 1) * startup
        note = "the messages of a round between all pairs are taken to move only after all of them were posted"
    elif startup:
        drained = _one_after_another(cluster, ways[0], n, size, of_kind)
    arrivals = drained + latency
    order = np.argsort(arrivals, kind="stable")
    waiting = np.cumsum(members[order][::-1])[::-1] * reduce  # what is left to reduce from each arrival on
    end = float((arrivals[order] + waiting).max()) if reduce else float(arrivals.max())
    if reduce and startup and len(ways) == 1:
        end = _reduced_in_turn(cluster, ways[0], n, size, of_kind, latency[0], reduce)
    return Price(end, 1, n * (n - 1), link_bytes, note)


def _shared_out(cluster: Cluster, ways: Any, members: Any, of_kind: Any, size: float) -> Floats:
    """When the last byte of each way's transfers has left, all having started at 0: shape (ways,)."""
    n, kinds = cluster.ranks, len(of_kind)
    first = np.array([int(np.flatnonzero(cluster.link_kind == kind)[0]) for kind in range(kinds)])
    capacity = np.where(cluster.shared[first], cluster.bandwidth[first], np.inf)
    bandwidth = np.append(cluster.bandwidth[first], np.inf)
    limit = bandwidth[ways].min(axis=1)
    times = (ways[:, :, None] == np.arange(kinds)).sum(axis=1)  # how often a way crosses each kind
    load = times * members[:, None] * n / of_kind  # transfers of each way on a link of each kind
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


def _in_turn(cluster: Cluster, way: Any, n: int, size: float, of_kind: Any) -> Floats:
    """Each of a rank's messages, posted one after another, all on one way: when it has drained, shape (n-1,)."""
    kinds = [int(kind) for kind in way if kind < len(of_kind)]
    links = [int(np.flatnonzero(cluster.link_kind == kind)[0]) for kind in kinds]
    posted = np.multiply(np.arange(1, n), cluster.startup_s, dtype=np.float64)
    limit = float(cluster.bandwidth[links].min())
    pairs = zip(kinds, links, strict=True)
    shares = [cluster.bandwidth[link] * of_kind[kind] / n for kind, link in pairs if cluster.shared[link]]
    if not shares or limit < min(shares) * (1 - 1e-12):
        return np.asarray(posted + size / limit, np.float64)
    capacity = np.array([min(shares), np.inf])
    return drain_times(posted, np.full(n - 1, size), np.zeros((n - 1, 1), np.int32), capacity, np.full(n - 1, np.inf))


def _one_after_another(cluster: Cluster, way: Any, n: int, size: float, of_kind: Any) -> Floats:
    return np.array([_in_turn(cluster, way, n, size, of_kind).max()])


def _reduced_in_turn(
    cluster: Cluster, way: Any, n: int, size: float, of_kind: Any, latency: float, reduce: float
) -> float:
    arrived = np.sort(_in_turn(cluster, way, n, size, of_kind)) + latency
    return float((arrived + reduce * np.arange(n - 1, 0, -1)).max())


def shifts(cluster: Cluster, part: Shifts, chunk_bytes: float) -> Price:
    """Rounds that differ in distance only: of those that look the same in this cluster, one is simulated.

    The cluster looks the same when every rank moves ``period`` places, so distances that agree modulo the period
    are alike, but for those less than a period.
    """
    n, period = cluster.ranks, cluster.period
    if not period or period * 64 > n:
        raise UnsupportedError(
            f"{cluster.name} repeats itself too seldom for {n:,} ranks to exchange pairwise without listing every"
            " round: use a cluster of more, smaller hosts, or fewer ranks"
        )
    net = network(cluster)
    settings = Settings(startup_s=cluster.startup_s)
    rank = np.arange(n, dtype=np.int32)
    counts = part.counts or (1,) * len(part.distances)
    known: dict[tuple[int, int, int], tuple[float, Floats]] = {}
    time_s, link_bytes, transfers = 0.0, np.zeros(cluster.link_count), 0
    times: dict[tuple[int, int, int], int] = {}
    for distance, count in zip(part.distances, counts, strict=True):
        near = min(distance, n - distance)
        key = (distance % period, distance if near < period else -1, count)
        times[key] = times.get(key, 0) + 1
        transfers += n * count
        if key not in known:
            size = np.full(n, count * chunk_bytes)
            p = pattern(net, rank, (rank + distance) % n, size, np.zeros(n))
            late = Settings(startup_s=settings.startup_s * count)
            end = float(step(net, p, np.zeros(n), late, 0, None).after.max())
            known[key] = (end, p.link_bytes(cluster.link_count)[:-1])
    for key, (end, carried) in known.items():
        time_s += times[key] * end
        link_bytes += times[key] * carried
    note = "" if period == 1 else "rounds are taken to follow each other without overlap"
    return Price(time_s, len(part.distances), transfers, link_bytes, note)
