"""Several algorithms and protocols of one runtime, fitted together: which is the best for a size.

The rules of the model:

- Each algorithm with each protocol takes a latency and a time per byte, and the two add up.
- But in a ring with Simple, they overlap: NCCL cuts a chunk into slices there (and nowhere else: ``chunkSteps`` in
  ``src/enqueue.cc``), so one slice is handed over while the next is under way. There the two are taken to add up as
  the sides of a right angle do: ``sqrt(latency^2 + bytes^2)``.
- In a ring, a buffer with fewer elements than ranks leaves most steps with nothing to carry, so they cost less: by one
  factor, the same for all protocols of the ring.

So 2 numbers for each line, and one more where there are rings and such small sizes among those that are fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from farandole.errors import UsageError
from farandole.gpu.fit import Errors, Floats, errors, solved
from farandole.gpu.sweep import Point

ELEMENT_BYTES = 4
FEWEST_SIZES = 5
Name = tuple[str, str]
SLICED: Name = ("ring", "Simple")


@dataclass(frozen=True, slots=True)
class Branches:
    """Lines by (algorithm, protocol): ``latency_s`` and ``per_byte_s`` have shape (names,)."""

    names: tuple[Name, ...]
    ranks: int
    latency_s: Floats
    per_byte_s: Floats
    sparse_ring_factor: float
    parameters: int

    def times(self, sizes: ArrayLike) -> Floats:
        """Seconds by name and size in bytes, shape (names, sizes)."""
        size = np.atleast_1d(np.asarray(sizes, np.float64))
        waiting, moving = self.latency_s[:, None], self.per_byte_s[:, None] * size
        overlaps = np.array([name == SLICED for name in self.names])[:, None]
        lines = np.where(overlaps, np.hypot(waiting, moving), waiting + moving)
        is_sparse = _rings(self.names)[:, None] & (size < ELEMENT_BYTES * self.ranks)
        return np.asarray(np.where(is_sparse, self.sparse_ring_factor, 1.0) * lines)

    def best(self, sizes: ArrayLike) -> list[Name]:
        """The fastest for each size."""
        return [self.names[i] for i in self.times(sizes).argmin(axis=0)]


@dataclass(frozen=True, slots=True)
class BranchFit:
    """A fit of a whole table: ``times`` has shape (names, sizes).

    ``model`` is fitted to all points, ``trained`` to the training sizes, and ``without[j]`` to all sizes but the
    j-th.
    """

    sizes: Floats
    times: Floats
    training: NDArray[np.bool_]
    model: Branches
    trained: Branches
    without: tuple[Branches, ...]
    in_sample: Errors
    held_out: Errors
    leave_one_out: Errors

    @property
    def training_points(self) -> int:
        """How many points ``trained`` was fitted to."""
        return int(self.training.sum()) * len(self.times)

    def right_choices(self) -> list[bool]:
        """For each size: whether the fastest by ``without``, which never saw that size, is the one that measured so."""
        return [
            self.without[j].best(size)[0] == self.model.names[int(self.times[:, j].argmin())]
            for j, size in enumerate(self.sizes)
        ]

    def right_choices_of_split(self) -> list[bool]:
        """The same for ``trained``, which saw every other size."""
        return [
            best == self.model.names[int(self.times[:, j].argmin())]
            for j, best in enumerate(self.trained.best(self.sizes))
        ]


@dataclass(frozen=True, slots=True)
class Split:
    """One way to fit some sizes and hold out the others: which were ``fitted``, and how it came out."""

    fitted: tuple[int, ...]
    held_out: Errors
    off: Floats
    right_choices: int


def every_split(fit: BranchFit) -> list[Split]:
    """All ways to fit as many sizes as ``fit`` was trained on, the smallest and the largest among them.

    What one split comes to may be luck; what they all come to is not. ``off`` has the held-out errors, without sign.
    """
    found = []
    count, fastest = len(fit.sizes), fit.times.argmin(axis=0)
    for inner in combinations(range(1, count - 1), int(fit.training.sum()) - 2):
        seen = np.isin(np.arange(count), [0, *inner, count - 1])
        model = _fit(fit.model.names, fit.model.ranks, fit.sizes[seen], fit.times[:, seen])
        predicted, measured = model.times(fit.sizes[~seen]).ravel(), fit.times[:, ~seen].ravel()
        found.append(
            Split(
                fitted=tuple(int(size) for size in fit.sizes[seen]),
                held_out=errors(predicted, measured),
                off=np.abs(predicted / measured - 1),
                right_choices=int((model.times(fit.sizes).argmin(axis=0) == fastest).sum()),
            )
        )
    return found


def is_labelled(points: Sequence[Point]) -> bool:
    """Whether all points say their algorithm and protocol, and there is more than one pair of them."""
    names = {(point.algorithm, point.protocol) for point in points}
    return len(names) > 1 and all(algorithm and protocol for algorithm, protocol in names)


def fit_branches(points: Sequence[Point]) -> BranchFit:
    """Fit points of one collective on one number of ranks that say their algorithm and protocol.

    Sizes in ascending order are fitted and held out in turn, as in ``fit.py``. Raises UsageError unless every line
    was measured at the same sizes, at least five of them.
    """
    sizes, names, times = _square(points)
    ranks = points[0].ranks
    training = np.arange(len(sizes)) % 2 == 0
    model = _fit(names, ranks, sizes, times)
    trained = _fit(names, ranks, sizes[training], times[:, training])
    keep = [np.arange(len(sizes)) != j for j in range(len(sizes))]
    without = tuple(_fit(names, ranks, sizes[rest], times[:, rest]) for rest in keep)
    left_out = np.stack([branch.times(size)[:, 0] for branch, size in zip(without, sizes, strict=True)], axis=1)
    return BranchFit(
        sizes=sizes,
        times=times,
        training=training,
        model=model,
        trained=trained,
        without=without,
        in_sample=errors(model.times(sizes).ravel(), times.ravel()),
        held_out=errors(trained.times(sizes[~training]).ravel(), times[:, ~training].ravel()),
        leave_one_out=errors(left_out[:, 1:-1].ravel(), times[:, 1:-1].ravel()),
    )


def _square(points: Sequence[Point]) -> tuple[Floats, tuple[Name, ...], Floats]:
    names = tuple(dict.fromkeys((point.algorithm, point.protocol) for point in points))
    sizes = np.unique([point.size_bytes for point in points]).astype(np.float64)
    table = np.full((len(names), len(sizes)), np.nan)
    for point in points:
        table[names.index((point.algorithm, point.protocol)), int(np.searchsorted(sizes, point.size_bytes))] = (
            point.time_s
        )
    if np.isnan(table).any() or len(sizes) < FEWEST_SIZES:
        raise UsageError(
            f"algorithms are compared over the same sizes, at least {FEWEST_SIZES}: there are {len(sizes)} sizes, and"
            f" {int(np.isnan(table).sum())} of {table.size} times are missing",
            sizes=len(sizes),
        )
    return sizes, names, table


def _fit(names: tuple[Name, ...], ranks: int, sizes: Floats, times: Floats) -> Branches:
    has_sparse = bool(_rings(names).any() and (sizes < ELEMENT_BYTES * ranks).any())
    count = len(names)

    def branches(numbers: Floats) -> Branches:
        factor = float(np.exp(numbers[-1])) if has_sparse else 1.0
        lines = np.exp(numbers[: 2 * count])
        return Branches(names, ranks, lines[:count], lines[count:], factor, 2 * count + has_sparse)

    def residual(numbers: Floats) -> Floats:
        return np.asarray(np.log(branches(numbers).times(sizes) / times).ravel())

    middle = times[:, len(sizes) // 2 - 1]
    start = np.log(np.concatenate([middle, times[:, -1] / sizes[-1], [0.7] * has_sparse]))
    return branches(solved(residual, start))


def _rings(names: Sequence[Name]) -> NDArray[np.bool_]:
    return np.array([algorithm == "ring" for algorithm, _ in names])
