"""What each collective must give, written down from its definition with NumPy alone; and inputs for it."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.layout import split

Array = NDArray[Any]
FUNCTIONS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def lengths(ranks: int) -> list[int]:
    """Awkward lengths for a world size: none, fewer elements than ranks, one off, prime."""
    return sorted({0, 1, ranks - 1, ranks, ranks + 1, 37})


def shares(length: int, ranks: int) -> list[int]:
    """The lengths of the blocks when ``length`` elements are shared out."""
    return [int(size) for size in np.diff(split(length, ranks))]


def inputs_for(collective: str, ranks: int, root: int, length: int, dtype: str = "int64") -> list[Array | None]:
    """Inputs that depend on rank and position, with values so small that sums and products are exact."""
    random = np.random.default_rng([ranks, root, length])

    def array(size: int) -> Array:
        return random.integers(-3, 4, size).astype(dtype)

    if collective == "barrier":
        return [None] * ranks
    if collective in ("broadcast", "scatter"):
        return [array(length) if rank == root else None for rank in range(ranks)]
    if collective in ("all_gather", "gather"):
        return [array(size) for size in shares(length, ranks)]
    return [array(length) for _ in range(ranks)]


def outputs_for(collective: str, inputs: list[Array | None], root: int, op: str = "sum") -> list[Array | None]:
    """What every rank must end with, by definition."""
    ranks = len(inputs)
    given = [array for array in inputs if array is not None]
    if collective == "barrier":
        return [None] * ranks
    if collective == "broadcast":
        return [given[0]] * ranks
    if collective in ("all_gather", "gather"):
        everything = np.concatenate(given)
        return [everything if collective == "all_gather" or rank == root else None for rank in range(ranks)]
    bounds = split(len(given[0]), ranks)
    blocks = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    if collective == "scatter":
        return [given[0][a:b] for a, b in blocks]
    if collective == "all_to_all":
        return [np.concatenate([array[a:b] for array in given]) for a, b in blocks]
    total = reduce(FUNCTIONS[op], given)
    if collective == "reduce_scatter":
        return [total[a:b] for a, b in blocks]
    return [total if collective == "all_reduce" or rank == root else None for rank in range(ranks)]


def same(got: list[Array | None], expected: list[Array | None]) -> bool:
    """Whether all ranks have exactly what is expected, in dtype, shape and value."""
    return len(got) == len(expected) and all(
        (a is None and b is None) or (a is not None and b is not None and a.dtype == b.dtype and np.array_equal(a, b))
        for a, b in zip(got, expected, strict=True)
    )
