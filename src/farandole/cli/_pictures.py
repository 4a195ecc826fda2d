"""The files that ``farandole show`` writes, by their ending, and what goes with a page: time, and a second run."""

from __future__ import annotations

import tempfile
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.cli._clusters import cluster_of
from farandole.cli._output import print_note
from farandole.cli._schedules import schedule_of
from farandole.cli._traces import PERFETTO, read_trace, write_trace
from farandole.errors import FormatError, UsageError

if TYPE_CHECKING:
    from farandole.schedule import Schedule
    from farandole.show.payload import Run
    from farandole.simulate import Simulation
    from farandole.trace import Trace
    from farandole.verify import Report


@dataclass(frozen=True, slots=True)
class Extras:
    """What is shown besides the schedule: a cluster's spec and the size to simulate, a trace, what to compare."""

    cluster: str | None = None
    size_bytes: int = 0
    trace: Trace | None = None
    compare: str | None = None
    moving: bool = False

    def check(self, suffix: str) -> None:
        """Raise UsageError where something is asked for that a file of this kind does not show."""
        given = {"--cluster": self.cluster, "--trace": self.trace, "--compare": self.compare}
        for option, value in given.items():
            fits = suffix == ".html" or (suffix == PERFETTO and option != "--compare")
            if value is not None and not fits:
                raise UsageError(f"{option} is for a page: add -o FILE.html, or --open", got=option)
        if self.moving and suffix != ".svg":
            raise UsageError("--moving is for an SVG: add -o FILE.svg (a .html and a .gif move anyway)")


def write(schedule: Schedule, report: Report, path: Path, extras: Extras) -> None:
    """Write the schedule to ``path`` in the form that its ending says."""
    suffix = PERFETTO if path.name.endswith(PERFETTO) else path.suffix
    if suffix not in _WRITERS:
        forms = ", ".join(_WRITERS)
        raise UsageError(f"a schedule is written to a file that ends with {forms}, not to {path.name!r}")
    extras.check(suffix)
    _WRITERS[suffix](schedule, report, path, extras)
    if suffix != PERFETTO:
        print_note(f"wrote {path}")


def open_page(schedule: Schedule, report: Report, path: Path | None, extras: Extras) -> None:
    """Write a page, to a file of its own if there is no ``path``, and open it in the browser."""
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="farandole-")) / "schedule.html"
    write(schedule, report, path, extras)
    if not webbrowser.open(path.resolve().as_uri()):
        print_note("there is no browser to open it in; open the file yourself")


def _write_page(schedule: Schedule, report: Report, path: Path, extras: Extras) -> None:
    from farandole.show.page import page  # noqa: PLC0415 - loads NumPy

    cluster = None if extras.cluster is None else cluster_of(extras.cluster)
    first = _timed(schedule, extras) if extras.trace is None else extras.trace
    html = page(schedule, report, first, cluster and cluster.first(schedule.ranks), _second(schedule, extras))
    path.write_text(html, encoding="utf-8")


def _timed(schedule: Schedule, extras: Extras) -> Simulation | None:
    """The simulation on the cluster that was given, with its trace."""
    if extras.cluster is None:
        return None
    from farandole.simulate import simulate  # noqa: PLC0415 - loads NumPy

    itemsize = 1 if extras.size_bytes % 4 else 4
    return simulate(schedule, cluster_of(extras.cluster), extras.size_bytes, itemsize=itemsize, trace=True)


def _second(schedule: Schedule, extras: Extras) -> Run | Trace | None:
    """The run to compare with: another algorithm or schedule for as many ranks, or another trace of this one."""
    from farandole.show.payload import Run  # noqa: PLC0415 - loads NumPy

    if extras.compare is None:
        if extras.trace is not None and extras.cluster is not None:
            return Run(schedule, trace=_timed(schedule, extras))
        return None
    if extras.compare.endswith(".json"):
        try:
            return read_trace(Path(extras.compare))
        except FormatError:
            other = schedule_of(extras.compare, None, None, None)
    else:
        other = schedule_of(extras.compare, schedule.ranks, schedule.collective, schedule.root)
    cluster = None if extras.cluster is None else cluster_of(extras.cluster).first(other.ranks)
    return Run(other, trace=_timed(other, extras), cluster=cluster)


def _write_json(schedule: Schedule, _report: Report, path: Path, _extras: Extras) -> None:
    from farandole.export.json import write_schedule  # noqa: PLC0415 - loads NumPy

    write_schedule(schedule, path)


def _write_perfetto(schedule: Schedule, _report: Report, path: Path, extras: Extras) -> None:
    simulation = _timed(schedule, extras)
    trace = simulation.trace if simulation else extras.trace
    if trace is None or (simulation and extras.trace):
        raise UsageError(f"a {PERFETTO} is a trace: add --cluster to simulate one, or --trace for one that there is")
    write_trace(trace, path)


def _write_text(schedule: Schedule, _report: Report, path: Path, _extras: Extras) -> None:
    from farandole.show.table import Limits, show_table  # noqa: PLC0415 - loads NumPy

    path.write_text(f"{show_table(schedule, Limits.none(schedule))}\n", encoding="utf-8")


def _write_svg(schedule: Schedule, _report: Report, path: Path, extras: Extras) -> None:
    from farandole.show import svg  # noqa: PLC0415 - loads NumPy

    path.write_text(svg.animated(schedule) if extras.moving else svg.strip(schedule), encoding="utf-8")


def _write_gif(schedule: Schedule, _report: Report, path: Path, _extras: Extras) -> None:
    from farandole.show.gif import write_gif  # noqa: PLC0415 - loads NumPy

    write_gif(schedule, path)


_WRITERS: dict[str, Callable[[Schedule, Report, Path, Extras], None]] = {
    ".html": _write_page,
    ".json": _write_json,
    PERFETTO: _write_perfetto,
    ".txt": _write_text,
    ".svg": _write_svg,
    ".gif": _write_gif,
}
