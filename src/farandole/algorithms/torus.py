"""2D torus: rings along the rows and rings along the columns, both at once, each with half of the buffer.

One half is reduce-scattered along the rows, all-reduced along the columns and gathered along the rows;
the other half does the same with rows and columns exchanged. So all four links of a rank are in use.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.algorithms import hierarchical
from farandole.algorithms.registry import Ranks, algorithm, check_shape, near_square
from farandole.errors import OptionError
from farandole.schedule import Round, merged, placed

PAPER = "Ying et al., Image classification at supercomputer scale, 2018; Mikami et al., 2D-torus all-reduce, 2018"


@algorithm(
    "torus",
    "all_reduce",
    chunks=lambda n, **_: 2 * n,
    rounds="2(a-1) + 2(b-1) for a x b ranks, and up to as many again where a and b differ",
    bytes_per_rank="2S(n-1)/n",
    paper=PAPER,
)
def all_reduce(n: int, sides: Ranks = ()) -> Iterator[Round]:
    """Rings along rows and columns of an a x b torus; ``sides`` is a, b; rank = row * a + column."""
    shape = check_shape(n, sides, "sides", near_square)
    if len(shape) != 2:
        raise OptionError(f"a torus has two sides, such as sides=4x2, not {len(shape)}", option="sides", got=sides)
    width, height = shape
    rank = np.arange(n, dtype=np.int32)
    turned = rank.reshape(height, width).T.ravel()
    rows_first = hierarchical.all_reduce(n, (width, height))
    columns_first = hierarchical.all_reduce(n, (height, width))
    yield from merged(placed(rows_first, rank, chunk=0), placed(columns_first, turned, chunk=n))
