"""Recursive halving and doubling: partners split their work in half each round, then put it together again.

In the halving part, two ranks that share a run of blocks each keep half of it and send the partner the
other half; after log n rounds each is left with its own block, reduced. Doubling runs that backwards.

Where n is not a power of two, let m be the largest power of two below and e = n - m. The first 2e ranks
form e pairs; the odd one of each pair folds its data into the even one, which then works for both.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.algorithms.recursive_doubling import power_below
from farandole.algorithms.registry import algorithm
from farandole.schedule import Ints, Round, named

PAPER = "Rabenseifner, Optimization of collective reduction operations, ICCS 2004"
EVEN = "log n, and 1 more unless n is a power of two"


def _workers(n: int) -> tuple[Ints, Ints]:
    """The m ranks that work, and the first block of each (one more entry, n, at the end)."""
    m = power_below(n)
    worker = np.arange(m, dtype=np.int32)
    first = np.where(worker < n - m, 2 * worker, worker + n - m).astype(np.int32)
    return first, np.append(first, np.int32(n))


def _helped(n: int) -> Ints:
    """The odd ranks of the pairs: those for which the rank before them works."""
    return np.arange(1, 2 * (n - power_below(n)), 2, dtype=np.int32)


def _halving(n: int) -> Iterator[Round]:
    """Fold, then halve: each worker ends with the reduced blocks from ``first[w]`` to ``first[w + 1]``."""
    rank, first = _workers(n)
    helped = _helped(n)
    yield Round(src=helped, dst=helped - 1, count=n, reduce=True, phase="fold")
    worker = np.arange(len(rank))
    distance = len(rank) // 2
    while distance:
        partner = worker ^ distance
        low = partner - partner % distance
        yield Round(
            src=rank, dst=rank[partner], chunk=first[low], count=first[low + distance] - first[low], reduce=True
        )
        distance //= 2


def _doubling(n: int) -> Iterator[Round]:
    """Doubling, then unfold: the workers' blocks are spread to every rank."""
    rank, first = _workers(n)
    worker = np.arange(len(rank))
    distance = 1
    while distance < len(rank):
        low = worker - worker % distance
        yield Round(src=rank, dst=rank[worker ^ distance], chunk=first[low], count=first[low + distance] - first[low])
        distance *= 2
    helped = _helped(n)
    yield Round(src=helped - 1, dst=helped, count=n, phase="unfold")


@algorithm("halving", "reduce_scatter", rounds=EVEN.replace("1 more", "2 more"), bytes_per_rank="S(n-1)/n", paper=PAPER)
def reduce_scatter(n: int) -> Iterator[Round]:
    """Recursive halving; partners at distance n/2 first."""
    yield from _halving(n)
    helped = _helped(n)
    yield Round(src=helped - 1, dst=helped, chunk=helped, phase="unfold")


@algorithm("doubling", "all_gather", rounds=EVEN.replace("1 more", "2 more"), bytes_per_rank="S(n-1)/n", paper=PAPER)
def all_gather(n: int) -> Iterator[Round]:
    """Recursive doubling; partners at distance 1 first."""
    helped = _helped(n)
    yield Round(src=helped, dst=helped - 1, chunk=helped, phase="fold")
    yield from _doubling(n)


@algorithm(
    "halving_doubling",
    "all_reduce",
    chunks=lambda n: n,
    rounds="2 log n, and 2 more unless n is a power of two",
    bytes_per_rank="2S(n-1)/n, and up to 2S more unless n is a power of two",
    paper=PAPER,
)
def all_reduce(n: int) -> Iterator[Round]:
    """Recursive halving, then recursive doubling: the ring's traffic in the tree's number of rounds."""
    yield from named("reduce-scatter", _halving(n))
    yield from named("all-gather", _doubling(n))
