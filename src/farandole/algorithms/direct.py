"""Direct: every rank talks to every other at once, over the full mesh; the fewest rounds there can be."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.algorithms.registry import algorithm
from farandole.schedule import Ints, Round, named

PAPER = "Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, IJHPCA 2005"


def everyone_else(n: int) -> tuple[Ints, Ints]:
    """All ordered pairs of two different ranks: (src, dst), each of length n(n-1)."""
    src, dst = np.divmod(np.arange(n * n, dtype=np.int32), n)
    different = src != dst
    return src[different], dst[different]


def others(n: int, root: int) -> Ints:
    """All ranks but the root, ascending."""
    return np.delete(np.arange(n, dtype=np.int32), root)


@algorithm("direct", "reduce_scatter", rounds="1", bytes_per_rank="S(n-1)/n", paper=PAPER)
def reduce_scatter(n: int) -> Iterator[Round]:
    """Every rank sends each block straight to the rank that owns it."""
    src, dst = everyone_else(n)
    yield Round(src=src, dst=dst, chunk=dst, reduce=True)


@algorithm("direct", "all_gather", rounds="1", bytes_per_rank="S(n-1)/n", paper=PAPER)
def all_gather(n: int) -> Iterator[Round]:
    """Every rank sends its block straight to all others."""
    src, dst = everyone_else(n)
    yield Round(src=src, dst=dst, chunk=src)


@algorithm("direct", "all_reduce", chunks=lambda n: n, rounds="2", bytes_per_rank="2S(n-1)/n", paper=PAPER)
def all_reduce(n: int) -> Iterator[Round]:
    """Reduce-scatter in one round over the full mesh, then all-gather in one round."""
    yield from named("reduce-scatter", reduce_scatter(n))
    yield from named("all-gather", all_gather(n))


@algorithm("direct", "broadcast", rounds="1", bytes_per_rank="S(n-1) at the root", paper=PAPER)
def broadcast(n: int, root: int) -> Iterator[Round]:
    """The root sends the whole buffer to each rank."""
    yield Round(src=root, dst=others(n, root))


@algorithm("direct", "reduce", rounds="1", bytes_per_rank="S, and S(n-1) into the root", paper=PAPER)
def reduce(n: int, root: int) -> Iterator[Round]:
    """Every rank sends its whole buffer to the root."""
    yield Round(src=others(n, root), dst=root, reduce=True)


@algorithm("direct", "gather", rounds="1", bytes_per_rank="S/n, and S(n-1)/n into the root", paper=PAPER)
def gather(n: int, root: int) -> Iterator[Round]:
    """Every rank sends its block to the root."""
    rank = others(n, root)
    yield Round(src=rank, dst=root, chunk=rank)


@algorithm("direct", "scatter", rounds="1", bytes_per_rank="S(n-1)/n at the root", paper=PAPER)
def scatter(n: int, root: int) -> Iterator[Round]:
    """The root sends each rank its block."""
    rank = others(n, root)
    yield Round(src=root, dst=rank, chunk=rank)


@algorithm("direct", "all_to_all", rounds="1", bytes_per_rank="S(n-1)/n", paper=PAPER)
def all_to_all(n: int) -> Iterator[Round]:
    """Every rank sends every other its block, all at once."""
    src, dst = everyone_else(n)
    yield Round(src=src, dst=dst, chunk=src * n + dst)
