"""A sweep: libraries side by side on the same sizes, in turns, so that a machine that drifts does so for all.

For each number of ranks, all libraries are started and stay. For each collective and size there are several rounds; in
each, one library after the other makes buffers, calls once and checks, calls to warm up, and is timed for a
batch of calls back to back, while the others sleep. The order turns by one from round to round. Before the first point
counts it is measured once: the system needs a while to spread new processes over the cores.

A repetition's time is the mean of what it took on each rank; median and p99 are over the repetitions of all rounds.
Where ranks may run ahead of each other, many calls are short and one in between is long. The median does not see that,
so there is also the mean over a batch, and of that the median over the batches.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from farandole.bandwidth import algbw, bus_factor
from farandole.bench.jobs import Job
from farandole.bench.peers import OURS, Library, Missing
from farandole.errors import CommunicationError
from farandole.run.group import ProcessGroup

CALL_TIMEOUT_S = 60.0
_FEWEST_CALLS, _MOST_CALLS = 2, 1000  # in a batch

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. A batch of calls is to take about ``batch_s`` seconds; there are ``rounds`` batches."""

    libraries: Sequence[Library]
    ranks: Sequence[int]
    collectives: Sequence[str]
    sizes: Sequence[int]
    dtype: str = "float32"
    rounds: int = 5
    batch_s: float = 0.05
    timeout_s: float = CALL_TIMEOUT_S

    @property
    def batches(self) -> int:
        """How many there are in all."""
        points = len(self.ranks) * len(self.collectives) * len(self.sizes)
        return (points + len(self.ranks)) * self.rounds * len(self.libraries)


@dataclass(frozen=True, slots=True)
class Measured:
    """One library at one point; ``detail`` is the algorithm that it says it used.

    ``mean_s`` is the median over the batches of their means, the other times are over all repetitions.
    ``batch_medians_s`` and ``batch_means_s`` are those of each batch, one in each round. ``batch_line_ns`` is how long
    it then took to read a line of memory from the core of the farthest rank; 0 where the library does not say.
    """

    library: str
    collective: str
    ranks: int
    size_bytes: int
    repetitions: int
    median_s: float
    mean_s: float
    p99_s: float
    min_s: float
    checked: bool
    detail: str
    batch_medians_s: tuple[float, ...]
    batch_means_s: tuple[float, ...]
    batch_line_ns: tuple[int, ...]

    @property
    def algbw(self) -> float:
        """Bytes per second: the size over the median time."""
        return algbw(self.size_bytes, self.median_s)

    @property
    def busbw(self) -> float:
        """Bytes per second, comparable with the bandwidth of links."""
        return self.algbw * bus_factor(self.collective, self.ranks)


@dataclass(slots=True)
class Sweep:
    """All that was measured, the libraries' own words for their versions, and what was left out on the way."""

    measured: list[Measured] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)


@dataclass(slots=True)
class _Point:
    """The batches of one library at one point."""

    times_s: list[list[float]] = field(default_factory=list)  # of each batch, the mean over the ranks
    line_ns: list[int] = field(default_factory=list)
    right: bool = True
    detail: str = ""


def run_sweep(plan: Plan, progress: Progress = lambda _: None) -> Sweep:
    """Carry out the plan; ``progress`` is told of each batch as it begins.

    A library that fails is left out from then on, with the reason in ``missing``; if it is ours, the error is raised.
    """
    sweep = Sweep()
    for ranks in plan.ranks:
        with _jobs(plan, ranks, sweep, progress) as jobs:
            first = _point(plan, jobs, plan.collectives[0], plan.sizes[0], sweep, progress)
            sweep.measured += [row for row in first if not row.checked]
            for collective, size_bytes in itertools.product(plan.collectives, plan.sizes):
                sweep.measured += _point(plan, jobs, collective, size_bytes, sweep, progress)
    return sweep


def _start(
    group: ProcessGroup, library: Library, ranks: int, folder: Path, ended: dict[int, int], jobs: list[Job]
) -> None:
    jobs.append(Job(group, library, ranks, folder / library.name, ended))


@contextlib.contextmanager
def _jobs(plan: Plan, ranks: int, sweep: Sweep, progress: Progress) -> Iterator[list[Job]]:
    """All libraries on that many ranks, started one after the other."""
    ended: dict[int, int] = {}
    with tempfile.TemporaryDirectory(prefix="farandole-bench-") as folder, ProcessGroup() as group:
        jobs: list[Job] = []
        try:
            for library in plan.libraries:
                progress(f"starting {library.name} on {ranks}")
                start = functools.partial(_start, group, library, ranks, Path(folder), ended, jobs)
                if _succeeds(start, library, sweep):
                    sweep.versions[library.name] = jobs[-1].version
            yield jobs
            for job in jobs:
                job.close()
        finally:
            for job in jobs:
                job.kill()


def _point(
    plan: Plan, jobs: list[Job], collective: str, size_bytes: int, sweep: Sweep, progress: Progress
) -> list[Measured]:
    """All libraries at one point, in turns."""
    points = {job.library.name: _Point() for job in jobs}
    for number in range(plan.rounds):
        turn = number % max(1, len(jobs))
        for job in [*jobs[turn:], *jobs[:turn]]:
            progress(f"{job.library.name} {collective} {size_bytes} B on {job.ranks}")
            batch = functools.partial(_batch, plan, job, collective, size_bytes, points[job.library.name])
            if not _succeeds(batch, job.library, sweep):
                job.kill()
                jobs.remove(job)
                del points[job.library.name]
    return [
        _measured(name, collective, jobs[0].ranks, size_bytes, point) for name, point in points.items() if point.times_s
    ]


def _batch(plan: Plan, job: Job, collective: str, size_bytes: int, point: _Point) -> None:
    what = f"{collective} of {size_bytes} bytes"
    order = {"do": "measure", "collective": collective, "size_bytes": size_bytes, "dtype": plan.dtype}
    answers = job.ask(order, plan.timeout_s, what)
    if any("unsupported" in answer for answer in answers):
        return
    point.right &= all(answer["right"] for answer in answers)
    point.detail = answers[0]["detail"]
    expected_s = max(1e-9, *(answer["time_s"] for answer in answers))
    repetitions = round(min(_MOST_CALLS, max(_FEWEST_CALLS, plan.batch_s / expected_s)))
    answers = job.ask({"do": "time", "repetitions": repetitions}, plan.timeout_s + 10 * plan.batch_s, what)
    point.right &= all(answer["right"] for answer in answers)
    point.times_s.append(np.mean([answer["times_s"] for answer in answers], axis=0).tolist())
    point.line_ns.append(max(answer["line_ns"] for answer in answers))


def _measured(name: str, collective: str, ranks: int, size_bytes: int, point: _Point) -> Measured:
    times = np.concatenate(point.times_s)
    means = tuple(float(np.mean(batch)) for batch in point.times_s)
    return Measured(
        library=name,
        collective=collective,
        ranks=ranks,
        size_bytes=size_bytes,
        repetitions=len(times),
        median_s=float(np.median(times)),
        mean_s=float(np.median(means)),
        p99_s=float(np.quantile(times, 0.99)),
        min_s=float(times.min()),
        checked=point.right,
        detail=point.detail,
        batch_medians_s=tuple(float(np.median(batch)) for batch in point.times_s),
        batch_means_s=means,
        batch_line_ns=tuple(point.line_ns),
    )


def _succeeds(action: Callable[[], None], library: Library, sweep: Sweep) -> bool:
    """Whether the action succeeds; the failure of a library other than ours becomes an entry of ``missing``."""
    try:
        action()
    except CommunicationError as error:
        if library.name == OURS:
            raise
        sweep.missing.append(Missing(library.name, str(error), "the rest of the sweep went on without it"))
        return False
    return True
