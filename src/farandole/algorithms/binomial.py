"""Binomial tree: in each of log n rounds, the number of ranks that have (or still need) the data doubles.

Ranks are numbered from the root: ``place = (rank - root) mod n``. The parent of a place is that place with
its lowest set bit cleared, so the subtree below place p with lowest bit b is the run p .. p+b-1: a run of
blocks, which gather and scatter move as one transfer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.algorithms.registry import algorithm
from farandole.schedule import Ints, Round, wrapped

PAPER = "Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, IJHPCA 2005"


def _levels(n: int) -> Iterator[tuple[Ints, Ints, Ints]]:
    """From the leaves up: (child places, their parents, sizes of the children's subtrees)."""
    step = 1
    while step < n:
        child = np.arange(step, n, 2 * step, dtype=np.int32)
        yield child, child - step, np.minimum(step, n - child)
        step *= 2


@algorithm("binomial", "reduce", rounds="ceil(log n)", bytes_per_rank="S, and S log n into the root", paper=PAPER)
def reduce(n: int, root: int) -> Iterator[Round]:
    """Partial sums go up a binomial tree."""
    for child, parent, _ in _levels(n):
        yield Round(src=(child + root) % n, dst=(parent + root) % n, reduce=True)


@algorithm("binomial", "broadcast", rounds="ceil(log n)", bytes_per_rank="S log n at the root", paper=PAPER)
def broadcast(n: int, root: int) -> Iterator[Round]:
    """The buffer goes down a binomial tree."""
    for child, parent, _ in reversed(list(_levels(n))):
        yield Round(src=(parent + root) % n, dst=(child + root) % n)


@algorithm("binomial", "gather", rounds="ceil(log n)", bytes_per_rank="S/2 at most", paper=PAPER)
def gather(n: int, root: int) -> Iterator[Round]:
    """Blocks are collected up a binomial tree; a rank passes on its whole subtree."""
    for child, parent, size in _levels(n):
        yield wrapped((child + root) % n, (parent + root) % n, child + root, size, modulo=n)


@algorithm("binomial", "scatter", rounds="ceil(log n)", bytes_per_rank="S(n-1)/n at the root", paper=PAPER)
def scatter(n: int, root: int) -> Iterator[Round]:
    """Blocks are handed down a binomial tree; a child receives those of its whole subtree."""
    for child, parent, size in reversed(list(_levels(n))):
        yield wrapped((parent + root) % n, (child + root) % n, child + root, size, modulo=n)
