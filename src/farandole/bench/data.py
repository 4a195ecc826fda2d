"""Inputs for trials, and what must come out, by each collective's definition in plain NumPy.

Every element depends on its rank and its position, so that a part that lands in the wrong place shows.
The numbers are small whole ones: sums and products are exact in every dtype, and so is the comparison.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.layout import split

Array = NDArray[Any]

PERIOD = 2 * 3 * 5 * 7 * 11 * 13  # long enough that no chunk of a usual size looks like another


@lru_cache(maxsize=8)
def values(rank: int, length: int, dtype: str, op: str) -> Array:
    """The input of ``rank``: shape (length,), read-only."""
    position = np.arange(min(length, PERIOD), dtype=np.int64)
    mixed = position * 2654435761 + (rank + 1) * 40503 * (position % 7 + 1)
    mixed = (mixed >> 7) & 0xFFFF
    if op == "prod":
        small = np.where(mixed % 5 == rank % 5, 2, 1)
    elif op in {"band", "bor", "bxor"}:
        small = mixed & 0x7F
    else:
        small = mixed % 4
    given = np.resize(small.astype(np.bool_ if dtype == "bool" else dtype), length)
    given.flags.writeable = False
    return given


_UFUNCS = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


def input_length(collective: str, ranks: int, rank: int, length: int, root: int) -> int:
    """Elements in the input of ``rank`` where the largest buffer of a rank has ``length``."""
    if collective == "barrier" or (collective in {"broadcast", "scatter"} and rank != root):
        return 0
    if collective in {"all_gather", "gather"}:
        return int(np.diff(split(length, ranks))[rank])
    return length


@lru_cache(maxsize=8)
def expected(
    collective: str, ranks: int, rank: int, length: int, *, dtype: str, op: str, root: int = 0
) -> Array | None:
    """What ``rank`` must hold after the collective, or None where it gets nothing."""

    def given(other: int) -> Array:
        return values(other, input_length(collective, ranks, other, length, root), dtype, op)

    bounds = split(length, ranks)
    mine = slice(bounds[rank], bounds[rank + 1])
    if collective == "barrier" or (collective in {"reduce", "gather"} and rank != root):
        return None
    if collective in {"all_reduce", "reduce", "reduce_scatter"}:
        whole = reduce(_UFUNCS[op], (given(other) for other in range(ranks)))
        return np.asarray(whole[mine] if collective == "reduce_scatter" else whole)
    if collective in {"all_gather", "gather"}:
        return np.concatenate([given(other) for other in range(ranks)])
    if collective == "all_to_all":
        return np.concatenate([given(other)[mine] for other in range(ranks)])
    whole = given(root)
    return np.asarray(whole[mine] if collective == "scatter" else whole)
