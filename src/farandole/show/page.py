"""The player: one HTML file that shows any schedule, round by round or over time, and works offline.

The page is built from ``player/`` and lies beside this module; here it gets its data, as JSON in one script
element. What the data looks like is said in :mod:`farandole.show.payload`.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import msgspec

from farandole import __version__
from farandole.cluster.model import Cluster
from farandole.schedule import Schedule
from farandole.show.payload import Run, run_payload
from farandole.simulate.result import Simulation
from farandole.trace import Trace
from farandole.verify import Report

FORMAT = "farandole.player"
VERSION = 1

_BEFORE, _AFTER = '<script type="application/json" id="farandole-data">', "</script>"


def page(
    schedule: Schedule,
    report: Report | None = None,
    trace: Trace | Simulation | None = None,
    cluster: Cluster | None = None,
    compare: Run | Schedule | Trace | Simulation | None = None,
) -> str:
    """The page for a schedule, also a broken one: it opens on the first problem.

    Without ``report`` the schedule is verified. ``trace`` adds the time view (a simulation that kept its trace also
    shows the busy links and the critical path), ``cluster`` the picture of hosts and links. ``compare`` is a second
    run beside the first: another schedule, or another trace of the same one.

    Raises UsageError where a schedule or trace has too much for a page, or a trace is of another world.
    """
    return filled(msgspec.json.encode(payload(schedule, report, trace, cluster, compare)).decode())


def payload(
    schedule: Schedule,
    report: Report | None = None,
    trace: Trace | Simulation | None = None,
    cluster: Cluster | None = None,
    compare: Run | Schedule | Trace | Simulation | None = None,
) -> dict[str, Any]:
    """The data of that page, as plain values."""
    runs = [Run(schedule, report, trace, cluster)]
    if compare is not None:
        runs.append(_second(runs[0], compare))
    return {
        "format": FORMAT,
        "version": VERSION,
        "made_by": f"farandole {__version__}",
        "runs": _told_apart([run_payload(run) for run in runs]),
    }


def _second(first: Run, compare: Run | Schedule | Trace | Simulation) -> Run:
    if isinstance(compare, Run):
        return compare
    if isinstance(compare, Schedule):
        return Run(compare, cluster=first.cluster)
    return Run(first.schedule, first.report, compare, first.cluster)


def _told_apart(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs; two that have the same title and were both timed say how."""
    if len({run["title"] for run in runs}) == len(runs) or not all(run["trace"] for run in runs):
        return runs
    return [{**run, "title": f"{run['title']}, {run['trace']['kind']}"} for run in runs]


def filled(data: str) -> str:
    """The player with its data: a JSON text, in which ``<`` is escaped, so that no text in it can end the script."""
    template = files("farandole.show").joinpath("player.html").read_text(encoding="utf-8")
    head, opening, rest = template.partition(_BEFORE)
    _, closing, tail = rest.partition(_AFTER)
    return f"{head}{opening}{data.replace('<', chr(92) + 'u003c')}{closing}{tail}"
