"""Dissemination: in round k every rank tells the rank 2^k places on who has arrived, as far as it knows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.algorithms.registry import algorithm
from farandole.schedule import Round, wrapped

PAPER = "Hensgen, Finkel and Manber, Two algorithms for barrier synchronization, IJPP 1988"


@algorithm("dissemination", "barrier", rounds="ceil(log n)", bytes_per_rank="0", paper=PAPER)
def barrier(n: int) -> Iterator[Round]:
    """After ceil(log n) rounds every rank has heard, directly or not, that every rank has arrived."""
    rank = np.arange(n)
    known = 1
    while known < n:
        count = min(known, n - known)
        yield wrapped(rank, (rank + known) % n, rank - count + 1, count, modulo=n)
        known *= 2
