"""Ring: every rank talks to its right neighbour only; each link carries the same load in every round."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.algorithms.registry import Ranks, algorithm, check_order
from farandole.schedule import Round, named

PAPER = "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 2009"


@algorithm("ring", "reduce_scatter", rounds="n-1", bytes_per_rank="S(n-1)/n", paper=PAPER)
def reduce_scatter(n: int, order: Ranks = ()) -> Iterator[Round]:
    """Partial sums travel once around the ring; each ends at the rank that owns its block."""
    rank = np.fromiter(check_order(n, order), np.int32, n)
    place = np.arange(n)
    for k in range(n - 1):
        yield Round(src=rank, dst=rank[(place + 1) % n], chunk=rank[(place - k - 1) % n], reduce=True)


@algorithm("ring", "all_gather", rounds="n-1", bytes_per_rank="S(n-1)/n", paper=PAPER)
def all_gather(n: int, order: Ranks = ()) -> Iterator[Round]:
    """Each block travels once around the ring and is copied by every rank it passes."""
    rank = np.fromiter(check_order(n, order), np.int32, n)
    place = np.arange(n)
    for k in range(n - 1):
        yield Round(src=rank, dst=rank[(place + 1) % n], chunk=rank[(place - k) % n])


@algorithm("ring", "all_reduce", chunks=lambda n, **_: n, rounds="2(n-1)", bytes_per_rank="2S(n-1)/n", paper=PAPER)
def all_reduce(n: int, order: Ranks = ()) -> Iterator[Round]:
    """Reduce-scatter around the ring, then all-gather around the ring: least traffic, most rounds."""
    yield from named("reduce-scatter", reduce_scatter(n, order))
    yield from named("all-gather", all_gather(n, order))
