"""Inputs for long buffers and the check of what comes out, at the speed of memory.

The values of ``data`` repeat after PERIOD elements, and so does every sum of them. So the input is a tile laid again
and again, and the result is compared with a tile: no rank needs the other ranks' inputs, or a second result.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.bench.data import PERIOD, input_length, values
from farandole.errors import UnknownNameError
from farandole.layout import split

Array = NDArray[Any]
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
UNTOUCHED = -1  # no result holds it


def given(collective: str, ranks: int, rank: int, length: int, dtype: str) -> Array:
    """The input of ``rank`` where the largest buffer of a rank has ``length`` elements."""
    return np.resize(_tile(rank, dtype), input_length(collective, ranks, rank, length, 0))


def empty(collective: str, ranks: int, rank: int, length: int, dtype: str) -> Array:
    """Where the result of ``rank`` goes, filled with what no result holds."""
    part = int(np.diff(split(length, ranks))[rank])
    lengths = {"reduce_scatter": part, "all_to_all": part * ranks}
    return np.full(lengths.get(collective, length), UNTOUCHED, dtype)


def is_right(result: Array, collective: str, ranks: int, rank: int, length: int) -> bool:
    """Whether every element of the sum, or of the whole, is what the definition says."""
    pieces = _pieces(collective, ranks, rank, length, result.dtype.name)
    return all(_repeats(result[begin:end], tile, phase) for begin, end, tile, phase in pieces)


def _pieces(collective: str, ranks: int, rank: int, length: int, dtype: str) -> Iterator[tuple[int, int, Array, int]]:
    """Parts of the result: where they begin and end, the tile they repeat, and where in the tile they begin."""
    bounds = [int(bound) for bound in split(length, ranks)]
    if collective == "all_reduce":
        yield 0, length, _sum(ranks, dtype), 0
    elif collective == "reduce_scatter":
        yield 0, bounds[rank + 1] - bounds[rank], _sum(ranks, dtype), bounds[rank] % PERIOD
    elif collective == "all_gather":
        for other in range(ranks):
            yield bounds[other], bounds[other + 1], _tile(other, dtype), 0
    elif collective == "all_to_all":
        part = bounds[rank + 1] - bounds[rank]
        for other in range(ranks):
            yield other * part, (other + 1) * part, _tile(other, dtype), bounds[rank] % PERIOD
    else:
        raise UnknownNameError("collective that is compared", collective, COLLECTIVES)


def _repeats(part: Array, tile: Array, phase: int) -> bool:
    turned = np.roll(tile, -phase)
    whole = len(part) // PERIOD * PERIOD
    rows = part[:whole].reshape(-1, PERIOD)
    return bool((rows == turned).all()) and bool((part[whole:] == turned[: len(part) - whole]).all())


@lru_cache(maxsize=128)
def _tile(rank: int, dtype: str) -> Array:
    return values(rank, PERIOD, dtype, "sum")


@lru_cache(maxsize=8)
def _sum(ranks: int, dtype: str) -> Array:
    return np.asarray(sum(_tile(rank, dtype) for rank in range(ranks)), dtype)
