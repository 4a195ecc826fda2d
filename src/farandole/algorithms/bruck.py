"""Bruck: in round k every rank hands all blocks it has to the rank 2^k places back; log n rounds for any n."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.algorithms.registry import algorithm
from farandole.schedule import Round, wrapped

PAPER = "Bruck, Ho, Kipnis, Upfal and Weathersby, Efficient algorithms for all-to-all communications, 1997"


@algorithm("bruck", "all_gather", rounds="ceil(log n)", bytes_per_rank="S(n-1)/n", paper=PAPER)
def all_gather(n: int) -> Iterator[Round]:
    """After round k, rank r has the 2^(k+1) blocks from its own upwards, around the end."""
    rank = np.arange(n)
    have = 1
    while have < n:
        yield wrapped(rank, (rank - have) % n, rank, min(have, n - have), modulo=n)
        have *= 2


@algorithm("bruck", "all_to_all", rounds="ceil(log n)", bytes_per_rank="(S/2) ceil(log n)", paper=PAPER)
def all_to_all(n: int) -> Iterator[Round]:
    """A block that must go d places on moves 2^k places in round k, for each bit k that is set in d."""
    src, dst = np.divmod(np.arange(n * n), n)
    distance = (dst - src) % n
    step = 1
    while step < n:
        moving = distance & step > 0
        at = (src + (distance & (step - 1))) % n
        yield Round(src=at[moving], dst=(at[moving] + step) % n, chunk=np.flatnonzero(moving))
        step *= 2
