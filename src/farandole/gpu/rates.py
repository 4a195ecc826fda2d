"""The parameters of ``farandole cost`` from our own measured runs: start-up, time per byte sent, per byte reduced.

The rules:

- A run's schedule is known, so its rounds, its bytes at the busiest rank, the bytes reduced there and its messages
  are counted, not guessed (``farandole.cost``). The measured time is taken to be a sum of the four, each times one
  number that is at least 0.
- A number is found only where the runs tell it apart from the others: in a ring all-reduce, half of what is sent is
  reduced, at every size, so time per byte sent and per byte reduced come as one. Other algorithms or collectives in
  the same file part them. What cannot be told is 0, and named.
- Sizes are fitted and held out in turn, as in ``fit.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.algorithms import build
from farandole.cost import Rates, price
from farandole.errors import UsageError
from farandole.gpu.fit import FEWEST_SIZES, Errors, Floats, errors, scipy_optimize, solved
from farandole.gpu.sweep import Point

NAMES = ("alpha_s", "beta_s_per_byte", "gamma_s_per_byte", "overhead_s")
DROPPED_FIRST = (3, 2, 0, 1)
APART = 0.05  # the part of a column that the others must leave unexplained


@dataclass(frozen=True, slots=True)
class RatesFit:
    """Rates fitted to all points, those fitted to the training sizes alone, and their errors."""

    rates: Rates
    trained: Rates
    untold: tuple[str, ...]
    training_points: int
    in_sample: Errors
    held_out: Errors

    @property
    def parameters(self) -> int:
        """How many numbers were free in the fit."""
        return len(NAMES) - len(self.untold)


def fit_rates(points: Sequence[Point]) -> RatesFit:
    """Fit runs whose algorithms are built in. Raises UsageError where there are too few sizes."""
    sizes = np.unique([point.size_bytes for point in points])
    if len(sizes) < FEWEST_SIZES:
        raise UsageError(
            f"{len(sizes)} sizes are too few: {FEWEST_SIZES} different ones are needed",
            expected=FEWEST_SIZES,
            got=len(sizes),
        )
    design = np.array([counts(point) for point in points])
    time = np.array([point.time_s for point in points])
    training = np.isin([point.size_bytes for point in points], sizes[::2])
    columns = told_apart(design[training] / time[training, None])
    if int(training.sum()) <= len(columns):
        raise UsageError(f"{int(training.sum())} points cannot fit {len(columns)} numbers and be tested on others")
    rates, trained = (_rates(design[which], time[which], columns) for which in (np.ones(len(time), np.bool_), training))
    return RatesFit(
        rates=_named(rates),
        trained=_named(trained),
        untold=tuple(NAMES[i] for i in range(len(NAMES)) if i not in columns),
        training_points=int(training.sum()),
        in_sample=errors(design @ rates, time),
        held_out=errors(design[~training] @ trained, time[~training]),
    )


def counts(point: Point) -> list[float]:
    """Rounds, bytes at the busiest rank summed over rounds, bytes reduced likewise, messages likewise."""
    schedule = build(point.collective, point.algorithm, point.ranks, point.root)
    units = (Rates(1, 0, 0, 0), Rates(0, 1, 0, 0), Rates(0, 0, 1, 0), Rates(0, 0, 0, 1))
    size = point.size_bytes - point.size_bytes % point.itemsize
    return [price(schedule, size, itemsize=point.itemsize, rates=unit).time_s for unit in units]


def told_apart(design: Floats) -> list[int]:
    """The columns that the others do not make up; of such a group the later in ``DROPPED_FIRST`` are kept."""
    columns = list(range(design.shape[1]))
    for column in DROPPED_FIRST:
        others = [i for i in columns if i != column]
        whole = float(np.linalg.norm(design[:, column]))
        if not others:
            break
        known = design[:, others] / np.maximum(np.linalg.norm(design[:, others], axis=0), 1e-300)
        rest = design[:, column] - known @ np.linalg.lstsq(known, design[:, column], rcond=None)[0]
        if whole == 0 or float(np.linalg.norm(rest)) < APART * whole:
            columns.remove(column)
    return columns


def _rates(design: Floats, time: Floats, columns: list[int]) -> Floats:
    """At least 0 each, with the least robust relative error."""
    start = _least_positive(design[:, columns] / time[:, None])
    used = [column for column, value in zip(columns, start, strict=True) if value > 0]
    values = np.zeros(design.shape[1])
    if used:
        numbers = np.log([value for value in start if value > 0])
        found = solved(lambda logs: np.asarray(np.log(design[:, used] @ np.exp(logs) / time)), numbers)
        values[used] = np.exp(found)
    return values


def _least_positive(design: Floats) -> NDArray[np.float64]:
    """The non-negative solution of ``design @ x = 1`` in the least-squares sense."""
    scale = np.linalg.norm(design, axis=0)
    solution, _ = scipy_optimize().nnls(design / scale, np.ones(len(design)))
    return np.asarray(solution / scale, np.float64)


def _named(values: Floats) -> Rates:
    return Rates(**dict(zip(NAMES, map(float, values), strict=True)))
