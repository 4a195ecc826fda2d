"""Pairwise exchange: n-1 rounds, in each of which every rank has one partner to send to and one to hear from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.algorithms.registry import algorithm
from farandole.schedule import Round

PAPER = "Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, IJHPCA 2005"


@algorithm("pairwise", "all_to_all", rounds="n-1", bytes_per_rank="S(n-1)/n", paper=PAPER)
def all_to_all(n: int) -> Iterator[Round]:
    """In round k every rank sends to the rank k places on and receives from the rank k places back."""
    rank = np.arange(n)
    for k in range(1, n):
        to = (rank + k) % n
        yield Round(src=rank, dst=to, chunk=rank * n + to)
