"""Tree: a binomial reduction to rank 0 and a binomial broadcast back. Few rounds, but the root is busy."""

from __future__ import annotations

from collections.abc import Iterator

from farandole.algorithms import binomial
from farandole.algorithms.registry import algorithm
from farandole.schedule import Round, named

PAPER = binomial.PAPER


@algorithm("tree", "all_reduce", rounds="2 ceil(log n)", bytes_per_rank="S log n at the root", paper=PAPER)
def all_reduce(n: int) -> Iterator[Round]:
    """Reduce up a binomial tree, then broadcast down the same tree."""
    yield from named("reduce", binomial.reduce(n, root=0))
    yield from named("broadcast", binomial.broadcast(n, root=0))
