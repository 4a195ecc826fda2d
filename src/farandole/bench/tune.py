"""Measure which algorithm is fastest on this machine, for each collective, number of ranks and size.

For each number of ranks, one job of real processes holds a contest per collective and size; see ``tune_rank`` for how
it goes and ``contest`` for who wins. Contests take time as they have algorithms, bytes, and ranks for each core. Where
one algorithm is all there is, nothing is measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from farandole.bench.candidates import candidates
from farandole.bench.contest import LEAST_ROUNDS, summaries, winner
from farandole.bench.load import others_share, reading
from farandole.bench.tune_rank import DTYPE, PARTS, Times
from farandole.collectives import COLLECTIVES
from farandole.collectives import collective as find_collective
from farandole.errors import UsageError
from farandole.ops import find_dtype
from farandole.run.auto import choose
from farandole.run.machine import Machine, this_machine
from farandole.run.profile import OFF, VARIABLE, Measured, Point, Profile, Table
from farandole.run.spawn import spawn

RANKS = (2, 4, 8)
SIZES = tuple(64 * 8**k for k in range(7))  # bytes: 64 to 16 MiB
BUDGET_S = 60.0
_LARGE_BYTES = 256 << 10  # from here on, it is the bytes that take the time
_MOST_WEIGHT = 16
_TIMEOUT_S = 60.0  # of a call, and of starting and ending a job
_SETTINGS = {"timeout_s": _TIMEOUT_S, "deterministic": False}  # every algorithm may take part, whatever is set here

Progress = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Contest:
    """One collective on so many ranks with buffers of one size; the default algorithm is the first."""

    collective: str
    ranks: int
    size_bytes: int
    algorithms: tuple[str, ...]

    def weight(self, cores: int) -> float:
        """What share of the time it should have, beside the others' weights."""
        by_size = min(1 + self.size_bytes / _LARGE_BYTES, _MOST_WEIGHT)
        return len(self.algorithms) * by_size * max(1, self.ranks / cores)


def tune(
    ranks: Sequence[int] = RANKS,
    sizes: Sequence[int] = SIZES,
    collectives: Sequence[str] = (),
    *,
    budget_s: float = BUDGET_S,
    progress: Progress | None = None,
) -> Profile:
    """Measure for about ``budget_s`` seconds; the profile, for :func:`farandole.run.profile.write_profile`.

    ``sizes`` are bytes of the largest buffer of a rank; all collectives are measured if none is named. ``progress`` is
    called with the name of each contest as it begins. Raises UsageError where there is nothing to measure, and
    CommunicationError where a result is wrong.
    """
    return measure(plan(ranks, sizes, collectives), budget_s=budget_s, progress=progress)


def plan(ranks: Sequence[int], sizes: Sequence[int], collectives: Sequence[str] = ()) -> list[Contest]:
    """The contests that are to be held, job by job, the shortest messages first."""
    names = [find_collective(name).name for name in collectives or COLLECTIVES]
    _check(ranks, sizes)
    cores = this_machine().cores
    contests = []
    for n in sorted(set(ranks)):
        listed = {name: candidates(name, n, sizes, cores) for name in names}
        for size_bytes in sorted(set(sizes)):
            for name in names:
                default = choose(name, n, size_bytes, cores)
                others = [other for other in listed[name] if other != default]
                if others:
                    contests.append(Contest(name, n, size_bytes, (default, *others)))
    if not contests:
        raise UsageError(
            f"there is nothing to choose: each of {', '.join(names)} has one algorithm for so many ranks", got=names
        )
    return contests


def measure(contests: Sequence[Contest], *, budget_s: float, progress: Progress | None = None) -> Profile:
    """Hold the contests, within about ``budget_s`` seconds; how busy the machine was otherwise is noted."""
    machine, before = this_machine(), reading()
    deadline = time.monotonic() + budget_s
    points: dict[tuple[str, int], list[Point]] = {}
    left = sum(contest.weight(machine.cores) for contest in contests)
    for n in dict.fromkeys(contest.ranks for contest in contests):
        mine = [contest for contest in contests if contest.ranks == n]
        weight = sum(contest.weight(machine.cores) for contest in mine)
        share_s = max(deadline - time.monotonic(), 0.0) * weight / left
        left -= weight
        for contest, times in zip(mine, _hold(n, mine, machine, share_s, progress), strict=True):
            points.setdefault((contest.collective, n), []).append(_point(contest, times))
    tables = [Table(name, n, tuple(points[name, n])) for name, n in sorted(points)]
    return Profile(machine, tuple(tables), DTYPE, others_share=round(others_share(before, reading()), 3))


def undecided(point: Point) -> bool:
    """Whether there were too few rounds for any algorithm to win."""
    return all(row.rounds < LEAST_ROUNDS for row in point.measured)


def _hold(
    ranks: int, contests: Sequence[Contest], machine: Machine, share_s: float, progress: Progress | None
) -> list[Times]:
    listed = [
        {
            "collective": contest.collective,
            "size_bytes": contest.size_bytes,
            "algorithms": contest.algorithms,
            "weight": contest.weight(machine.cores),
        }
        for contest in contests
    ]
    answers = spawn(
        ranks,
        "farandole.bench.tune_rank:run_contests",
        {"contests": listed, "settings": _SETTINGS, "budget_s": share_s},
        timeout_s=3 * share_s + PARTS * len(contests) + _TIMEOUT_S,
        progress=progress,
        environ={**os.environ, VARIABLE: OFF},
    )
    times: list[Times] = answers[0]
    return times


def _point(contest: Contest, times: Times) -> Point:
    default = contest.algorithms[0]
    rows = tuple(Measured(row.algorithm, row.median_s, row.low_s, row.high_s, row.rounds) for row in summaries(times))
    return Point(contest.size_bytes, winner(times, default), default, rows)


def _check(ranks: Sequence[int], sizes: Sequence[int]) -> None:
    itemsize = find_dtype(DTYPE).itemsize
    for n in ranks:
        if n < 2:
            raise UsageError(f"there is something to choose on 2 ranks or more, not on {n}", got=n)
    for size_bytes in sizes:
        if size_bytes < itemsize or size_bytes % itemsize:
            raise UsageError(
                f"{DTYPE} is measured, so a size is a multiple of {itemsize} bytes, not {size_bytes}", got=size_bytes
            )
