"""What a round asks of a cluster: its messages with their routes, found once for all rounds that are the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from farandole.cluster.model import Cluster
from farandole.schedule import Round

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A cluster's links as the simulator wants them, each column one entry longer for 'no link'."""

    cluster: Cluster
    bandwidth: Floats
    latency_s: Floats
    capacity: Floats

    @property
    def none(self) -> int:
        """The number that stands for 'no link'."""
        return len(self.bandwidth) - 1


def network(cluster: Cluster) -> Network:
    """The links of ``cluster``; what is not shared has no limit together, only one per flow."""
    bandwidth = np.append(cluster.bandwidth, np.inf)
    capacity = np.append(np.where(cluster.shared, cluster.bandwidth, np.inf), np.inf)
    return Network(cluster, bandwidth, np.append(cluster.latency_s, 0.0), capacity)


class Transfers(NamedTuple):
    """The transfers of a round; ``size`` and ``reduced`` are bytes."""

    src: Ints
    dst: Ints
    size: Floats
    reduced: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """The messages of a round; all columns have one entry per message, ``routes`` has shape (m, width).

    A message is all that one rank sends another in the round. ``transfers`` are the columns src, dst, size and
    reduced by transfer, and ``message`` (shape (transfers,)) says which message each transfer is part of.
    ``size`` and ``reduced`` are bytes, ``limit`` is what a message gets when alone (bytes per second),
    ``place`` its place among those that its sender posts in the round. ``apart`` says that no link carries two,
    ``one_each`` and ``one_in_each`` that no rank sends or receives two; ``involved`` are the ranks that do either.
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
        total = np.zeros(links + 1)
        for column in self.routes.T:
            total += np.bincount(column, self.size if size is None else size, links + 1)
        return total


def pattern(net: Network, src: Ints, dst: Ints, size: Floats, reduced: Floats) -> Pattern:
    """Find the messages and their routes, and who shares what with whom; the columns are by transfer."""
    ranks = net.cluster.ranks
    transfers = Transfers(src, dst, size, reduced)
    pairs = src.astype(np.int64) * ranks + dst
    message = np.arange(len(src))
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    if len(first) < len(src):
        order = np.argsort(first)  # messages in the order in which their first transfers are listed
        message = np.argsort(order)[inverse.ravel()]
        src, dst = src[first[order]], dst[first[order]]
        size = np.bincount(message, size, len(src)).astype(np.float64)
        reduced = np.bincount(message, reduced, len(src)).astype(np.float64)
    found = net.cluster.routes(src, dst)
    routes = np.where(found < 0, net.none, found).astype(np.int32)
    one_each = bool(np.bincount(src, minlength=ranks).max(initial=0) <= 1)
    one_in_each = bool(np.bincount(dst, minlength=ranks).max(initial=0) <= 1)
    users = np.bincount(routes.ravel(), minlength=net.none + 1)[np.isfinite(net.capacity)]
    return Pattern(
        src=src,
        dst=dst,
        size=size,
        reduced=reduced,
        routes=routes,
        latency_s=net.latency_s[routes].sum(axis=1),
        limit=net.bandwidth[routes].min(axis=1, initial=np.inf),
        place=np.zeros(len(src), np.int32) if one_each else _places(src, dst, ranks),
        apart=bool(users.max(initial=0) <= 1),
        one_each=one_each,
        one_in_each=one_in_each,
        involved=np.union1d(src, dst),
        transfers=transfers,
        message=message,
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
