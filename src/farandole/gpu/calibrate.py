"""From a sweep to parameters that can be used again, with what they are worth.

For each series (what was measured, collective, ranks) the pieces of ``pieces.py``; where algorithms and protocols are
named, the lines of ``branches.py``; where the schedules are ours, the rates of ``rates.py``. Nothing is claimed that
the sweep does not bear out:

- with fewer than five sizes there are no parameters, but a word on what is missing;
- a latency is *told* only if it makes up half of the time at the smallest size, a bandwidth only if bytes make up
  half of it at the largest; otherwise the parameter says that it is not;
- every error is given on sizes that the fit has not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farandole.algorithms import REGISTRY
from farandole.errors import UsageError
from farandole.gpu.branches import BranchFit, fit_branches, is_labelled
from farandole.gpu.fit import Errors, Fit, Floats, errors, fit_series, merged, scipy_optimize
from farandole.gpu.pieces import Piece
from farandole.gpu.rates import RatesFit, fit_rates
from farandole.gpu.sweep import Point, Sweep


@dataclass(frozen=True, slots=True)
class SeriesFit:
    """One series: its fit, or in ``refusal`` why there is none.

    Whether the latency of the first piece and the bandwidth of the last are told by the sweep is said beside.
    """

    group: tuple[str, str, int]
    sizes: int
    fit: Fit | None
    refusal: str = ""
    is_latency_told: bool = True
    is_bandwidth_told: bool = True

    def spans(self) -> list[tuple[float, float, Piece]]:
        """From which size to which each piece is used."""
        if self.fit is None:
            return []
        first, last = float(self.fit.sizes[0]), float(self.fit.sizes[-1])
        edges = [first, *self.fit.model.switches(), last]
        return list(zip(edges, edges[1:], self.fit.model.pieces, strict=False))


@dataclass(frozen=True, slots=True)
class Reduction:
    """The time per byte that a rank reduces, from a reduce_scatter beside an all_gather of the same bytes.

    Both move (n-1)/n of the buffer; what the reduce_scatter takes longer at the largest size that both have is put
    down to the additions. It is told only if that is more than the two fits are off on sizes that they have not seen.
    """

    series: str
    ranks: int
    per_byte_s: float
    is_told: bool


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a sweep bears out."""

    kind: str
    series: tuple[SeriesFit, ...]
    branches: tuple[tuple[tuple[str, int], BranchFit], ...]
    rates: tuple[tuple[tuple[str, int], RatesFit], ...]
    reductions: tuple[Reduction, ...]
    notes: tuple[str, ...]

    @property
    def has_parameters(self) -> bool:
        """Whether anything could be fitted."""
        return any(each.fit for each in self.series) or bool(self.branches or self.rates)

    def in_sample(self) -> Errors | None:
        """Over the points of all series, each by the fit that has seen it; None where nothing was fitted."""
        fits = [each.fit for each in self.series if each.fit]
        pairs = [(fit.model.times(fit.sizes), fit.times) for fit in fits]
        return _together(pairs)

    def held_out(self) -> Errors | None:
        """Over the points of all series that were held out; None where nothing was fitted."""
        fits = [each.fit for each in self.series if each.fit]
        pairs = [(fit.trained.times(fit.sizes[~fit.training]), fit.times[~fit.training]) for fit in fits]
        return _together(pairs)


def calibrate(sweep: Sweep) -> Calibration:
    """Fit whatever the sweep bears out; what it does not is said in ``refusal`` and ``notes``.

    Raises UnsupportedError where SciPy is missing.
    """
    scipy_optimize()
    notes = list(sweep.notes)
    series = tuple(_fit_one(group, points) for group, points in sweep.series().items())
    by_call: dict[tuple[str, int], list[Point]] = {}
    for point in sweep.points:
        by_call.setdefault((point.collective, point.ranks), []).append(point)
    branches = []
    for call, points in by_call.items():
        if is_labelled(points):
            try:
                branches.append((call, fit_branches(points)))
            except UsageError as error:
                notes.append(f"{call[0]} on {call[1]} ranks, algorithms side by side: {error}")
    rates = []
    known = [point for point in sweep.points if is_built_in(point)] if sweep.kind == "farandole.run" else []
    for ranks in dict.fromkeys(point.ranks for point in known):
        some = [point for point in known if point.ranks == ranks]
        fit, note = _rates_or_note(some)
        notes += note
        rates += [(("+".join(dict.fromkeys(point.collective for point in some)), ranks), fit)] if fit else []
    return Calibration(sweep.kind, series, tuple(branches), tuple(rates), reductions(series), tuple(notes))


def reductions(series: Sequence[SeriesFit]) -> tuple[Reduction, ...]:
    """What reducing costs, for every series that has a reduce_scatter and an all_gather on as many ranks."""
    fits = {each.group: each.fit for each in series if each.fit}
    found = []
    for (name, collective, ranks), scattered in fits.items():
        gathered = fits.get((name, "all_gather", ranks))
        if collective != "reduce_scatter" or gathered is None:
            continue
        size = min(scattered.sizes[-1], gathered.sizes[-1])
        longer, whole = (float(fit.model.times(size)[0]) for fit in (scattered, gathered))
        noise = (scattered.held_out.median + gathered.held_out.median) * whole
        per_byte = max(longer - whole, 0.0) / (size * (ranks - 1) / ranks)
        found.append(Reduction(name, ranks, float(per_byte), bool(longer - whole > noise)))
    return tuple(found)


def _rates_or_note(points: Sequence[Point]) -> tuple[RatesFit | None, list[str]]:
    try:
        return fit_rates(points), []
    except UsageError as error:
        return None, [f"start-up, bytes and additions on {points[0].ranks} ranks: {error}"]


def is_built_in(point: Point) -> bool:
    """Whether the point's algorithm is one of ours, so that its schedule is known."""
    return (point.collective, point.algorithm.partition(":")[0]) in REGISTRY


def _fit_one(group: tuple[str, str, int], points: Sequence[Point]) -> SeriesFit:
    sizes, times = [point.size_bytes for point in points], [point.time_s for point in points]
    count = len(merged(sizes, times)[0])
    try:
        fit = fit_series(sizes, times)
    except UsageError as error:
        return SeriesFit(group, count, None, str(error))
    first, last = fit.model.pieces[0], fit.model.pieces[-1]
    at_first, at_last = fit.model.times(fit.sizes[[0, -1]])
    return SeriesFit(
        group,
        count,
        fit,
        is_latency_told=bool(first.latency_s >= 0.5 * at_first),
        is_bandwidth_told=bool(fit.sizes[-1] / last.bandwidth >= 0.5 * at_last),
    )


def _together(pairs: Sequence[tuple[Floats, Floats]]) -> Errors | None:
    if not pairs:
        return None
    predicted, measured = zip(*pairs, strict=True)
    return errors(np.concatenate(predicted), np.concatenate(measured))
