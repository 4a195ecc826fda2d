"""Values as HTML for notebooks: schedules and their traces are the player in a frame, the rest are small tables.

A frame holds its whole page (``srcdoc``), so that it also works in an exported notebook, offline. A value that has too
much for a page is a table with what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from farandole.algorithms import build
from farandole.errors import FarandoleError, UsageError
from farandole.schedule import Schedule
from farandole.show.page import page
from farandole.show.table import title
from farandole.simulate.result import Simulation
from farandole.trace import Trace
from farandole.units import counted, format_bandwidth, format_size, format_time
from farandole.verify import Report

SHOWN_PROBLEMS = 20
HEIGHT_PX = 560


def schedule_html(schedule: Schedule) -> str:
    """The player; it opens on the first fault where there is one."""
    try:
        return frame(page(schedule))
    except UsageError as error:
        return table([["schedule", title(schedule)], ["shown as a table because", str(error)]])


def report_html(report: Report) -> str:
    """The verdict, and the problems with where they are."""
    verdict = "correct" if report.ok else counted(len(report.problems), "problem")
    rows = [["verdict", f"{report.name}: {verdict}"], ["checked", counted(report.transfers, "transfer")]]
    if report.smallest_safe_depth is not None:
        rows.append(["smallest safe queue depth", str(report.smallest_safe_depth)])
    rows += [[problem.rule, problem.message] for problem in report.problems[:SHOWN_PROBLEMS]]
    if len(report.problems) > SHOWN_PROBLEMS:
        rows.append(["", f"and {len(report.problems) - SHOWN_PROBLEMS:,} more"])
    return table(rows)


def trace_html(trace: Trace) -> str:
    """The player over time where the trace is of an algorithm of ours, else what it is."""
    return _over_time(trace, trace) or table(_about(trace))


def _over_time(trace: Trace, shown: Trace | Simulation) -> str:
    """The player on its time view; empty where nobody knows the schedule, or it is too much for a page."""
    try:
        schedule = build(trace.collective, trace.name, trace.ranks, trace.root)
        return frame(page(schedule, trace=shown), "view=time")
    except FarandoleError:
        return ""


def simulation_html(simulation: Simulation) -> str:
    """The player over time where the simulation has kept its trace; the numbers, and the busiest links."""
    trace = simulation.trace
    above = "" if trace is None else _over_time(trace, simulation)
    rows = [
        ["simulated", f"{simulation.name}: {simulation.collective} of {format_size(simulation.size_bytes)}"],
        ["on", f"{counted(simulation.ranks, 'rank')} of {simulation.cluster.name}"],
        ["time", f"{format_time(simulation.time_s)} ({counted(simulation.rounds, 'round')})"],
        ["algbw", format_bandwidth(simulation.algbw)],
        ["busbw", format_bandwidth(simulation.busbw)],
        ["bottleneck", simulation.bottleneck],
        *([load.name, f"busy {load.utilisation:.1%} of the time"] for load in simulation.busiest(5)),
    ]
    return above + table([*rows, *([["note", simulation.note]] if simulation.note else [])])


def _about(trace: Trace) -> list[list[str]]:
    rows = [
        ["trace", f"{trace.name}: {trace.collective} of {format_size(trace.size_bytes)}, {trace.source}"],
        ["ranks", str(trace.ranks)],
        ["time", format_time(trace.time_ns / 1e9)],
        ["events", f"{len(trace):,}"],
    ]
    return [*rows, *([["times are good to", f"{trace.uncertainty_ns} ns"]] if trace.uncertainty_ns else [])]


def frame(html: str, place: str = "") -> str:
    """A page in a frame of its own; ``place`` is where in it to begin, as in the address of the page."""
    begin = (
        html.replace("<head>", f'<head><meta name="farandole-place" content="{escape(place)}">', 1) if place else html
    )
    return (
        f'<iframe srcdoc="{escape(begin)}" title="The player" sandbox="allow-scripts" loading="lazy"'
        f' style="width:100%;height:{HEIGHT_PX}px;border:1px solid #8888;border-radius:8px"></iframe>'
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of a heading and a text."""
    style = "text-align:left;vertical-align:top"
    body = "".join(
        f'<tr><th scope="row" style="{style}">{escape(head)}</th><td style="{style}">{escape(text)}</td></tr>'
        for head, text in rows
    )
    return f"<table><tbody>{body}</tbody></table>"
