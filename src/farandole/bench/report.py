"""What a sweep says: ratios at every point, geometric means over them, and all of it as JSON or tables.

A ratio is their time over ours at the same point: above 1, ours is faster. It is taken round by round, between batches
that came right after one another, and is the median of those: a machine that is slower for a while is so for both. The
time of a batch is its median unless it is said to be the mean. Points that a library does not support, or whose result
was wrong, have none. ``best_mpi`` stands for the fastest of the MPI libraries at each point.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from farandole.bench.peers import OURS
from farandole.bench.sweep import Measured, Sweep
from farandole.units import counted, format_size, format_time

MPIS = ("openmpi", "mpich", "intelmpi")
BEST_MPI = "best_mpi"


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times longer ``against`` takes at one point."""

    against: str
    collective: str
    ranks: int
    size_bytes: int
    ratio: float
    of_means: float


def ratios(measured: Sequence[Measured]) -> list[Ratio]:
    """Every other library against ours at every point, and the best of the MPI libraries where there are several."""
    right = [row for row in measured if row.checked]
    ours = {_point(row): row for row in right if row.library == OURS}
    found = [
        Ratio(
            row.library,
            *_point(row),
            _by_round(row.batch_medians_s, mine.batch_medians_s),
            _by_round(row.batch_means_s, mine.batch_means_s),
        )
        for row in right
        if row.library != OURS and (mine := ours.get(_point(row))) is not None
    ]
    if len({ratio.against for ratio in found} & {*MPIS}) > 1:
        points: dict[tuple[str, int, int], list[Ratio]] = {}
        for ratio in found:
            if ratio.against in MPIS:
                points.setdefault((ratio.collective, ratio.ranks, ratio.size_bytes), []).append(ratio)
        found += [
            Ratio(BEST_MPI, *point, min(r.ratio for r in theirs), min(r.of_means for r in theirs))
            for point, theirs in points.items()
        ]
    return found


def _by_round(theirs: Sequence[float], ours: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))


def geometric_mean(values: Iterable[float]) -> float:
    """The n-th root of the product.

    >>> geometric_mean([0.5, 2.0])
    1.0
    """
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


def as_json(sweep: Sweep, machine: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """The whole report as one object."""
    found = ratios(sweep.measured)
    machine = {**machine, "versions": {**machine["versions"], **sweep.versions}}
    return {
        "kind": "measured",
        "machine": machine,
        "parameters": parameters,
        "results": [
            {"kind": "measured", **asdict(row), "algbw": row.algbw, "busbw": row.busbw} for row in sweep.measured
        ],
        "ratios": [asdict(ratio) for ratio in found],
        "geomean": {name: geometric_mean(r.ratio for r in found if r.against == name) for name in _names(found)},
        "geomean_of_means": {
            name: geometric_mean(r.of_means for r in found if r.against == name) for name in _names(found)
        },
        "geomean_by": _means_by_group(found),
        "missing": [asdict(entry) for entry in sweep.missing],
    }


def tables(report: dict[str, Any]) -> list[tuple[str, list[str], list[list[str]]]]:
    """A title, headings and rows for each collective and number of ranks: times, and in brackets the ratios."""
    results, found = report["results"], report["ratios"]
    libraries = list(dict.fromkeys(row["library"] for row in results))
    ratio_at = {(r["against"], r["collective"], r["ranks"], r["size_bytes"]): r["ratio"] for r in found}
    made = []
    for collective, ranks in dict.fromkeys((row["collective"], row["ranks"]) for row in results):
        here = [row for row in results if (row["collective"], row["ranks"]) == (collective, ranks)]
        rows = []
        for size in dict.fromkeys(row["size_bytes"] for row in here):
            by_library = {row["library"]: row for row in here if row["size_bytes"] == size}
            cells = [format_size(size)]
            for name in libraries:
                ratio = ratio_at.get((name, collective, ranks, size))
                cells.append(_cell(by_library.get(name), ratio, with_p99=name == OURS))
            rows.append(cells)
        made.append((f"{collective} on {counted(ranks, 'rank')}", ["size", *libraries], rows))
    return made


def mean_rows(report: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the geometric means: one row a library, one column a collective and number of ranks."""
    groups = list(dict.fromkeys((row["collective"], row["ranks"]) for row in report["geomean_by"]))
    at = {(row["against"], row["collective"], row["ranks"]): row["ratio"] for row in report["geomean_by"]}
    headings = ["geometric mean", "all", *(f"{collective} x{ranks}" for collective, ranks in groups)]
    rows = []
    for name, mean in report["geomean"].items():
        of_groups = [at.get((name, *group)) for group in groups]
        rows.append([name, f"{mean:.2f}", *("-" if ratio is None else f"{ratio:.2f}" for ratio in of_groups)])
    return headings, rows


def _cell(row: dict[str, Any] | None, ratio: float | None, *, with_p99: bool) -> str:
    if row is None:
        return "-"
    if not row["checked"]:
        return "WRONG"
    rest = f" (p99 {format_time(row['p99_s'])})" if with_p99 else "" if ratio is None else f" ({ratio:.2f}x)"
    return format_time(row["median_s"]) + rest


def _means_by_group(found: Sequence[Ratio]) -> list[dict[str, Any]]:
    groups = dict.fromkeys((r.against, r.collective, r.ranks) for r in found)
    return [
        {
            "against": against,
            "collective": collective,
            "ranks": ranks,
            "ratio": geometric_mean(
                r.ratio for r in found if (r.against, r.collective, r.ranks) == (against, collective, ranks)
            ),
        }
        for against, collective, ranks in groups
    ]


def _point(row: Measured) -> tuple[str, int, int]:
    return row.collective, row.ranks, row.size_bytes


def _names(found: Sequence[Ratio]) -> list[str]:
    return list(dict.fromkeys(ratio.against for ratio in found))
