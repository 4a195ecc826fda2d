"""A runtime's time over the size, as the least of several straight lines.

The rules of the model:

- A runtime has a few ways to do a collective: algorithms, protocols, numbers of channels. Each takes a latency and a
  time per byte, and the runtime is taken to use the fastest at every size.
- So its time is ``min over pieces (latency + size / bandwidth)``: concave, with a switch where two pieces cross. Two
  numbers a piece, found from measured times.
- It holds between the smallest and the largest size that were measured, and says nothing outside.

One straight line alone (alpha-beta) cannot follow NCCL: LL has little latency and half the bandwidth, Simple the
opposite. Which protocol a piece stands for is not known from times, and not claimed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from farandole.errors import UsageError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Piece:
    """One line: ``latency_s`` seconds, and ``bandwidth`` in bytes of the buffer per second (algbw)."""

    latency_s: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Model:
    """Pieces in the order in which they are used, from small sizes to large ones."""

    pieces: tuple[Piece, ...]

    def __post_init__(self) -> None:
        if not self.pieces:
            raise UsageError("a model has at least one piece")

    @property
    def parameters(self) -> int:
        """How many numbers were free in the fit."""
        return 2 * len(self.pieces)

    def times(self, sizes: ArrayLike) -> Floats:
        """Seconds for each size in bytes, shape (sizes,).

        >>> Model((Piece(1e-5, 1e9), Piece(3e-5, 1e10))).times([0, 1000, 10_000_000]).round(7).tolist()
        [1e-05, 1.1e-05, 0.00103]
        """
        size = np.atleast_1d(np.asarray(sizes, np.float64))
        return np.asarray(np.min([piece.latency_s + size / piece.bandwidth for piece in self.pieces], axis=0))

    def switches(self) -> tuple[float, ...]:
        """The sizes in bytes at which one piece gives way to the next, shape (pieces - 1,).

        >>> [round(size) for size in Model((Piece(1e-5, 1e9), Piece(3e-5, 1e10))).switches()]
        [22222]
        """
        pairs = zip(self.pieces, self.pieces[1:], strict=False)
        return tuple(
            (after.latency_s - before.latency_s) / (1 / before.bandwidth - 1 / after.bandwidth)
            for before, after in pairs
        )


def envelope(lines: list[Piece], smallest: float, largest: float) -> Model:
    """The lines that are the least somewhere between two sizes, in the order in which they are."""
    grid = np.geomspace(max(smallest, 1.0), max(largest, 2.0), 2049)
    table = np.array([line.latency_s + grid / line.bandwidth for line in lines])
    best = table.argmin(axis=0)
    return Model(tuple(lines[i] for i in dict.fromkeys(best.tolist())))
