"""Fitting models to measured times, and their error on times that the fit has not seen.

The rules:

- Errors are relative: a time that is 10% off counts as much at 8 bytes as at 8 GiB. The residual is the logarithm of
  predicted over measured, with a loss that grows linearly beyond 5%, so that one odd point does not bend the line.
- *Held out* means: of the sizes in ascending order, the first, third, fifth and so on are fitted (training), the
  others are not looked at and then predicted. Nothing, not even how many pieces there are, is taken from them.
- *Leave one out* means: each size but the smallest and the largest is predicted from all the others.
- The number of pieces is the smallest whose leave-one-out error within the training sizes is within a tenth of the
  best; a fit always has fewer free numbers than training points.
- What is reported as the parameters is then fitted to all sizes, with that number of pieces.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import UnsupportedError, UsageError
from farandole.gpu.pieces import Model, Piece, envelope

Floats = NDArray[np.float64]
MOST_PIECES = 3
FEWEST_SIZES = 5
NOISE = 0.05
_PLACES = 20  # between which sizes a cut is tried, for the starts


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors, without sign: 0.1 is 10%."""

    median: float
    mean: float
    largest: float
    points: int

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Fit:
    """A fit of one series of ``sizes`` (ascending, bytes) and ``times`` (seconds).

    ``model`` is fitted to all points, ``trained`` to the training points alone; ``training`` says which those are.
    """

    model: Model
    trained: Model
    sizes: Floats
    times: Floats
    training: NDArray[np.bool_]
    in_sample: Errors
    held_out: Errors
    leave_one_out: Errors


def errors(predicted: Floats, measured: Floats) -> Errors:
    """How far predictions are from what was measured."""
    off = np.abs(predicted / measured - 1)
    return Errors(float(np.median(off)), float(off.mean()), float(off.max()), len(off))


def fit_series(sizes: Sequence[float], times: Sequence[float]) -> Fit:
    """Fit one series: as many pieces as its training points bear out.

    Several times of one size are taken as their median. Raises UsageError where there are fewer than five sizes.
    """
    size, time = merged(sizes, times)
    if len(size) < FEWEST_SIZES:
        raise UsageError(
            f"{len(size)} sizes are too few: {FEWEST_SIZES} different ones are needed, so that three fit a line of two"
            " numbers and two are left to test it on",
            expected=FEWEST_SIZES,
            got=len(size),
        )
    training = np.arange(len(size)) % 2 == 0
    count = pieces_for(size[training], time[training])
    trained = fit_pieces(size[training], time[training], count)
    model = fit_pieces(size, time, count)
    return Fit(
        model=model,
        trained=trained,
        sizes=size,
        times=time,
        training=training,
        in_sample=errors(model.times(size), time),
        held_out=errors(trained.times(size[~training]), time[~training]),
        leave_one_out=leave_one_out(size, time, count),
    )


def merged(sizes: Sequence[float], times: Sequence[float]) -> tuple[Floats, Floats]:
    """Sizes in ascending order, each once, with the median of its times."""
    size, time = np.asarray(sizes, np.float64), np.asarray(times, np.float64)
    if len(size) and ((size < 0).any() or (time <= 0).any()):
        raise UsageError("sizes are at least 0 and times greater than 0")
    different = np.unique(size)
    return different, np.array([np.median(time[size == each]) for each in different])


def pieces_for(size: Floats, time: Floats) -> int:
    """How many pieces the points bear out."""
    most = min(MOST_PIECES, (len(size) - 1) // 2)
    if most < 2 or len(size) < FEWEST_SIZES:
        return 1
    scores = [
        leave_one_out(size, time, count).mean for count in range(1, most + 1) if 2 * count < len(size) - 1
    ]  # fmt: skip
    return next(i for i, score in enumerate(scores) if score <= 1.1 * min(scores)) + 1


def leave_one_out(size: Floats, time: Floats, count: int) -> Errors:
    """Predict each size but the first and last from all the others."""
    inner = range(1, len(size) - 1)
    fits = {i: fit_pieces(np.delete(size, i), np.delete(time, i), count) for i in inner}
    predicted = np.array([fits[i].times(size[i])[0] for i in inner])
    return errors(predicted, time[1:-1])


def fit_pieces(size: Floats, time: Floats, count: int) -> Model:
    """The ``count`` lines whose least is nearest to the times (fewer where one is nowhere the least)."""
    starts = _starts(size, time, count)
    distance = np.abs(np.log(_least(starts, size) / time)).sum(axis=1)
    best = np.log(starts[int(distance.argmin())]).ravel()

    def residual(numbers: Floats) -> Floats:
        return np.asarray(np.log(_least(np.exp(numbers).reshape(-1, 2), size) / time))

    def slopes(numbers: Floats) -> Floats:
        """The derivative of each residual by each number: of the line that is the least there, and 0 elsewhere."""
        parts = np.exp(numbers).reshape(-1, 2, 1) * np.stack([np.ones(len(size)), size])
        whole = parts.sum(axis=1)
        is_least = np.arange(count)[:, None] == whole.argmin(axis=0)
        return np.asarray((parts * is_least[:, None, :] / whole.min(axis=0)).reshape(2 * count, -1).T)

    lines = np.exp(solved(residual, best, slopes)).reshape(-1, 2)
    return envelope([Piece(float(a), float(1 / b)) for a, b in lines], float(size[0]), float(size[-1]))


def solved(
    residual: Callable[[Floats], Floats], start: Floats, slopes: Callable[[Floats], Floats] | None = None
) -> Floats:
    """The numbers near ``start`` with the least robust sum of squared residuals.

    ``slopes`` is the derivative, shape (residuals, numbers); it is found by differences where it is not given.
    """
    found = scipy_optimize().least_squares(
        residual, start, jac=slopes or "2-point", loss="soft_l1", f_scale=NOISE, xtol=1e-6, ftol=1e-8, max_nfev=1000
    )
    return np.asarray(found.x, np.float64)


def scipy_optimize() -> Any:
    """SciPy's optimisers, or an error that says how to get them."""
    try:
        from scipy import optimize  # noqa: PLC0415 - an extra, and slow to load
    except ImportError as error:
        raise UnsupportedError("fitting needs SciPy: pip install 'farandole[calibrate]'", missing="scipy") from error
    return optimize


def _least(lines: Floats, size: Floats) -> Floats:
    """The least of lines of shape (..., lines, 2), latency and time per byte, at each size: shape (..., sizes)."""
    return np.asarray((lines[..., :1] + lines[..., 1:] * size).min(axis=-2))


def _starts(size: Floats, time: Floats, count: int) -> Floats:
    """A line through each of ``count`` groups of neighbouring sizes, for many ways to make such groups.

    Shape (ways, count, 2). Each group has at least two sizes.
    """
    places = np.unique(np.linspace(2, max(2, len(size) - 2), min(_PLACES, max(1, len(size) - 3))).astype(int)).tolist()
    ways = [
        edges
        for cuts in itertools.combinations(places, count - 1)
        if min(np.diff(edges := (0, *cuts, len(size)))) >= 2 or count == 1
    ]
    lines = {
        pair: _line(size[slice(*pair)], time[slice(*pair)]) for edges in ways for pair in itertools.pairwise(edges)
    }
    return np.array([[lines[pair] for pair in itertools.pairwise(edges)] for edges in ways])


def _line(size: Floats, time: Floats) -> tuple[float, float]:
    """Latency and time per byte by least squares of the relative error; both kept above nothing."""
    weight = 1 / time
    a, b, c = float(weight @ weight), float(weight @ (size * weight)), float((size * weight) @ (size * weight))
    d, e = float(weight.sum()), float((size * weight).sum())
    whole = a * c - b * b
    latency, per_byte = ((c * d - b * e) / whole, (a * e - b * d) / whole) if whole > 0 else (float(time[0]), 0.0)
    return max(latency, 0.01 * float(time[0])), max(per_byte, 1e-3 * float(time[-1]) / max(float(size[-1]), 1.0))
