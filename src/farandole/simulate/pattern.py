"""What a round asks of a cluster: its messages with their routes, found once for all rounds that are the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from farandole.cluster.model import Cluster
from farandole.cluster.routing import Torus
from farandole.schedule import Round
from farandole.simulate.arcs import Arcs, Lines, lines
from farandole.simulate.fairness import side_by_side
from farandole.simulate.fold import Fold
from farandole.simulate.sharing import Sharing, sharing

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]

LISTED_ROUTE = 1 << 9  # links on one route
LISTED_HOPS = 1 << 18  # links crossed in a round on a large torus: where there are more, routes are not listed


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A cluster's links as the simulator wants them, each column one entry longer for 'no link'.

    ``unshared`` are the numbers of the links without a limit together. Where not all ``lists`` fit, ``lines`` is there
    for a torus. In a folded world (see :mod:`farandole.simulate.fold`) the links are those that differ, and the
    ranks those of one period.
    """

    cluster: Cluster
    bandwidth: Floats
    latency_s: Floats
    capacity: Floats
    unshared: NDArray[np.intp]
    lists: bool
    lines: Lines | None
    fold: Fold | None = None

    @property
    def none(self) -> int:
        """The number that stands for 'no link'."""
        return len(self.bandwidth) - 1

    @property
    def ranks(self) -> int:
        """How many ranks are gone through."""
        return self.cluster.ranks if self.fold is None else self.fold.period

    def routes(self, src: Ints, dst: Ints) -> Ints:
        """The links crossed, shape (m, width), 'no link' in the places left over."""
        found = self.cluster.routes(src, dst)
        if self.fold is not None and self.cluster.link_count:
            return np.where(found < 0, self.none, self.fold.link[found]).astype(np.int32)
        return np.where(found < 0, self.none, found).astype(np.int32)


def network(cluster: Cluster, *, lists: bool = True, fold: Fold | None = None) -> Network:
    """The links of ``cluster``; what is not shared has no limit together, only one per flow.

    Without ``lists`` (for large worlds), long routes on a torus are told by arcs, and no round is gone through
    flow by flow for long.
    """
    alone, latency_s = cluster.bandwidth, cluster.latency_s
    together = np.where(cluster.shared, alone, np.inf)
    if fold is not None:
        alone, latency_s, together = fold.once(alone), fold.once(latency_s), fold.once(together)
    capacity = np.append(together, np.inf)
    unshared = np.flatnonzero(~np.isfinite(capacity))
    numbered = lines(cluster.router) if not lists and fold is None and isinstance(cluster.router, Torus) else None
    return Network(
        cluster, np.append(alone, np.inf), np.append(latency_s, 0.0), capacity, unshared, lists, numbered, fold
    )


class Transfers(NamedTuple):
    """The transfers of a round; ``size`` and ``reduced`` are bytes."""

    src: Ints
    dst: Ints
    size: Floats
    reduced: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """The messages of a round; all columns have one entry per message, ``routes`` has shape (m, width).

    Where routes are too long to be listed, ``arcs`` tells them, and ``routes`` has no columns.

    A message is all that one rank sends another in the round. ``transfers`` are the columns src, dst, size and
    reduced by transfer, and ``message`` (shape (transfers,)) says which message each transfer is part of.
    ``size`` and ``reduced`` are bytes, ``limit`` is what a message gets when alone (bytes per second),
    ``place`` its place among those that its sender posts in the round. ``apart`` says that no link carries two,
    ``one_each`` and ``one_in_each`` that no rank sends or receives two; ``involved`` are the ranks that do either.
    In a folded world ``dst`` is the rank that stands for the receiver, which is ``ahead`` places from the sender.
    """

    src: Ints
    dst: Ints
    size: Floats
    reduced: Floats
    routes: Ints
    latency_s: Floats
    limit: Floats
    place: Ints
    apart: bool
    one_each: bool
    one_in_each: bool
    involved: Ints
    transfers: Transfers
    message: NDArray[np.intp]
    arcs: Arcs | None = None
    ahead: Ints | None = None
    _sharing: list[Sharing] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.src)

    def equals(self, src: Ints, dst: Ints, size: Floats, reduced: Floats) -> bool:
        """Whether these transfers are the same."""
        mine = self.transfers
        return (
            len(src) == len(self.message)
            and np.array_equal(src, mine.src)
            and np.array_equal(dst, mine.dst)
            and np.array_equal(size, mine.size)
            and np.array_equal(reduced, mine.reduced)
        )

    def sharing(self, net: Network) -> Sharing:
        """Who shares what; found when first asked for, and kept."""
        if not self._sharing:
            self._sharing.append(sharing(self.routes, net.capacity, self.limit))
        return self._sharing[0]

    def folded(self, values: Floats) -> Floats:
        """The sums by message of values by transfer: shape (..., transfers) to (..., messages)."""
        if len(self.message) == len(self):
            return values
        result = np.zeros((*values.shape[:-1], len(self)))
        for place in np.ndindex(values.shape[:-1]):
            result[place] = np.bincount(self.message, values[place], len(self))
        return result

    def link_bytes(self, links: int, size: Floats | None = None) -> Floats:
        """The bytes that each link carries, shape (links + 1,), with other sizes of the messages if given."""
        total, weight = np.zeros(links + 1), self.size if size is None else size
        for crossed, bytes_ in side_by_side(self.routes, weight):
            total += np.bincount(crossed, bytes_, links + 1)
        if self.arcs is not None:
            total[self.arcs.link] += self.arcs.load(weight)
        return total

    def links(self) -> NDArray[np.intp]:
        """The links that are crossed."""
        used = np.flatnonzero(np.bincount(self.routes.ravel()))
        return used if self.arcs is None else self.arcs.link[self.arcs.users() > 0].astype(np.intp)


def pattern(net: Network, src: Ints, dst: Ints, size: Floats, reduced: Floats) -> Pattern:
    """Find the messages and their routes, and who shares what with whom; the columns are by transfer."""
    ranks, ahead = net.cluster.ranks, None
    if net.fold is not None:
        kept = src < net.fold.period
        src, dst, size, reduced = src[kept], dst[kept], size[kept], reduced[kept]
    transfers = Transfers(src, dst, size, reduced)
    pairs = src.astype(np.int64) * ranks + dst
    message = np.arange(len(src))
    in_order = bool((pairs[1:] > pairs[:-1]).all())  # then no pair comes twice
    first, inverse = (message, message) if in_order else np.unique(pairs, return_index=True, return_inverse=True)[1:]
    if len(first) < len(src):
        order = np.argsort(first)  # messages in the order in which their first transfers are listed
        message = np.argsort(order)[inverse.ravel()]
        src, dst = src[first[order]], dst[first[order]]
        size = np.bincount(message, size, len(src)).astype(np.float64)
        reduced = np.bincount(message, reduced, len(src)).astype(np.float64)
    one_each = bool(np.bincount(src, minlength=ranks).max(initial=0) <= 1)
    place = np.zeros(len(src), np.int32) if one_each else _places(src, dst, ranks)
    arcs = net.lines.arcs(src, dst) if net.lines is not None else None
    if arcs is not None and (arcs.hops > LISTED_HOPS or arcs.longest > LISTED_ROUTE):
        routes, apart = np.empty((len(src), 0), np.int32), False
        latency_s = arcs.total(net.latency_s[arcs.link])
        limit = np.full(len(src), np.inf)  # what a message gets is found together with what others get
    else:
        arcs = None
        routes = net.routes(src, dst)
        latency_s, limit = net.latency_s[routes].sum(axis=1), net.bandwidth[routes].min(axis=1, initial=np.inf)
        users = np.bincount(routes.ravel(), minlength=net.none + 1)
        users[net.unshared] = 0
        apart = bool(users.max(initial=0) <= 1)
    if net.fold is not None:
        dst, ahead = dst % net.fold.period, dst - src
    one_in_each = bool(np.bincount(dst, minlength=ranks).max(initial=0) <= 1)
    involved = np.zeros(net.ranks, np.bool_)
    involved[src] = involved[dst] = True
    return Pattern(
        src=src,
        dst=dst,
        size=size,
        reduced=reduced,
        routes=routes,
        latency_s=latency_s,
        limit=limit,
        place=place,
        apart=apart,
        one_each=one_each,
        one_in_each=one_in_each,
        involved=np.flatnonzero(involved).astype(np.int32),
        transfers=transfers,
        message=message,
        arcs=arcs,
        ahead=ahead,
    )


def _places(src: Ints, dst: Ints, ranks: int) -> Ints:
    """The place of each message among its sender's: the peer next above the sender first, and so on around."""
    order = np.lexsort(((dst - src) % ranks, src))
    ordered = src[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    start = np.maximum.accumulate(np.where(new, np.arange(len(src)), 0))
    places = np.empty(len(src), np.int32)
    places[order] = np.arange(len(src)) - start
    return places


def grouped(net: Network, rounds: Iterable[Round], chunk_bounds: Floats | float) -> Iterator[tuple[Pattern, int]]:
    """The patterns of the rounds, with how many rounds in a row ask the same.

    ``chunk_bounds`` has shape (chunks + 1,): the byte at which each chunk begins, and the end; or it is the
    size of every chunk.
    """
    last: Pattern | None = None
    repeat = 0
    for round_ in rounds:
        if isinstance(chunk_bounds, float):
            size = np.multiply(round_.count, chunk_bounds, dtype=np.float64)
        else:
            size = chunk_bounds[round_.chunk + round_.count] - chunk_bounds[round_.chunk]
        reduced = size * round_.reduce
        if last is None or not last.equals(round_.src, round_.dst, size, reduced):
            if last is not None:
                yield last, repeat
            last, repeat = pattern(net, round_.src, round_.dst, size, reduced), 0
        repeat += 1
    if last is not None:
        yield last, repeat


def carried(net: Network, groups: Iterable[tuple[Pattern, int]]) -> Floats:
    """The bytes that each link carries in all, shape (links + 1,)."""
    total = np.zeros(net.none + 1)
    for p, repeat in groups:
        total += repeat * p.link_bytes(net.none)
    return total
