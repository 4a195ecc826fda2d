"""How the player's page writes columns of numbers, so that they are short."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def column(values: Any) -> list[int] | int:
    """Whole numbers as a list, or as one number where all are the same.

    >>> column([1, 1, 1]), column([1, 2])
    (1, [1, 2])
    """
    array = np.asarray(values)
    if len(array) and (array == array[0]).all():
        return int(array[0])
    return [int(value) for value in array.tolist()]


def runs_of(mask: NDArray[np.bool_]) -> list[int]:
    """The runs of True in a mask: first, length, first, length, ...

    >>> runs_of(np.array([True, True, False, True]))
    [0, 2, 3, 1]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    first, end = edges[::2], edges[1::2]
    return [int(value) for value in np.stack([first, end - first], axis=1).ravel()]
