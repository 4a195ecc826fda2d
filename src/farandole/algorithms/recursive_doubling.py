"""Recursive doubling: in round k every rank exchanges all it has with the rank whose number differs in bit k.

Where n is not a power of two, the ranks above the largest power of two, m, first fold their data into a
partner (rank r into r - m) and get the result from it at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.algorithms.registry import algorithm
from farandole.schedule import Round

PAPER = "Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, IJHPCA 2005"


def power_below(n: int) -> int:
    """The largest power of two that is at most ``n``."""
    return 1 << (n.bit_length() - 1)


@algorithm(
    "recursive_doubling",
    "all_reduce",
    rounds="log n, and 2 more unless n is a power of two",
    bytes_per_rank="S log n",
    paper=PAPER,
)
def all_reduce(n: int) -> Iterator[Round]:
    """Pairs exchange and add their whole buffers, at doubling distances."""
    m = power_below(n)
    extra = np.arange(m, n)
    yield Round(src=extra, dst=extra - m, reduce=True, phase="fold")
    rank = np.arange(m)
    for k in range(m.bit_length() - 1):
        yield Round(src=rank, dst=rank ^ (1 << k), reduce=True, phase="exchange")
    yield Round(src=extra - m, dst=extra, phase="unfold")
