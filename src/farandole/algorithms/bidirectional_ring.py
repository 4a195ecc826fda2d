"""Bidirectional ring: half of every block travels to the right, half to the left, at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from farandole.algorithms import ring
from farandole.algorithms.registry import Ranks, algorithm
from farandole.schedule import Round, merged, named

PAPER = "Chan, Heimlich, Purkayastha and van de Geijn, Collective communication, CCPE 2007 (both directions)"


def _halves(one_way: Callable[[int, Ranks], Iterator[Round]], n: int, order: Ranks) -> Iterator[Round]:
    forward = order or tuple(range(n))
    ways = (
        [Round(r.src, r.dst, r.chunk * 2 + half, r.count, r.reduce, r.phase) for r in one_way(n, ranks)]
        for half, ranks in enumerate((forward, forward[::-1]))
    )
    yield from merged(*ways)


def _two_per_rank(n: int, **_: object) -> int:
    return 2 * n


@algorithm(
    "bidirectional_ring",
    "reduce_scatter",
    chunks=_two_per_rank,
    rounds="n-1",
    bytes_per_rank="S(n-1)/n",
    paper=PAPER,
)
def reduce_scatter(n: int, order: Ranks = ()) -> Iterator[Round]:
    """Two rings in opposite directions, each with half of every block."""
    yield from _halves(ring.reduce_scatter, n, order)


@algorithm(
    "bidirectional_ring", "all_gather", chunks=_two_per_rank, rounds="n-1", bytes_per_rank="S(n-1)/n", paper=PAPER
)
def all_gather(n: int, order: Ranks = ()) -> Iterator[Round]:
    """Two rings in opposite directions, each with half of every block."""
    yield from _halves(ring.all_gather, n, order)


@algorithm(
    "bidirectional_ring",
    "all_reduce",
    chunks=_two_per_rank,
    rounds="2(n-1)",
    bytes_per_rank="2S(n-1)/n",
    paper=PAPER,
)
def all_reduce(n: int, order: Ranks = ()) -> Iterator[Round]:
    """Two rings in opposite directions, each with half of the buffer: uses both directions of every link."""
    yield from named("reduce-scatter", reduce_scatter(n, order))
    yield from named("all-gather", all_gather(n, order))
