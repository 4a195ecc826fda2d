"""What the player's page holds: one or two runs, as columns, in JSON; the page's own format, not one to read back.

The rules, which ``player/src/model/payload.ts`` reads:

- a column of whole numbers is a list, or one number where all entries are the same;
- a mask of chunks is a flat list of runs: first chunk, number of chunks, first chunk, ...;
- the collective's part (who holds what before and after, whose input a chunk is) is data, so that the page
  knows neither a collective nor an algorithm;
- what is too large is cut to its first chunks, and ``left_out`` says so in one sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from farandole.captions import captions
from farandole.cluster.model import Cluster
from farandole.collectives import collective
from farandole.errors import UsageError
from farandole.schedule import Ints, Schedule
from farandole.show.columns import column, runs_of
from farandole.show.timing import cluster_part, trace_part
from farandole.show.titles import goal, title
from farandole.simulate.result import Simulation
from farandole.trace import Trace
from farandole.verify import Problem, Report, verify_schedule

SHOWN_RANKS = 64
SHOWN_CHUNKS = 64
MOST_TRANSFERS = 300_000
SHOWN_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class Run:
    """What one run shows: a schedule, and what is known about it.

    Without ``report`` the schedule is verified. ``trace`` is what happened when; a simulation that kept its trace
    also says which links were busy and what the time went into. ``cluster`` is where the picture puts the ranks.
    """

    schedule: Schedule
    report: Report | None = None
    trace: Trace | Simulation | None = None
    cluster: Cluster | None = None


def run_payload(run: Run) -> dict[str, Any]:
    """One run as plain dicts, lists and numbers.

    Raises UsageError where even one chunk has too many transfers for a page, or the parts are of different worlds.
    """
    schedule = run.schedule
    what = collective(schedule.collective)
    shown = min(schedule.chunks, SHOWN_CHUNKS)
    table = _shown_transfers(schedule, shown)
    report = run.report or verify_schedule(schedule)
    phases = list(dict.fromkeys(r.phase for r in schedule.rounds))
    shape = (schedule.ranks, schedule.chunks, schedule.root)
    simulation = run.trace if isinstance(run.trace, Simulation) else None
    cluster = run.cluster or (simulation.cluster if simulation else None)
    return {
        "title": title(schedule),
        "name": schedule.name,
        "collective": schedule.collective,
        "ranks": schedule.ranks,
        "chunks": shown,
        "root": schedule.root,
        "goal": goal(schedule),
        "phases": [phase or title(schedule, with_options=False) for phase in phases],
        "rounds": {
            "phase": column([phases.index(r.phase) for r in schedule.rounds]),
            "transfers": column(np.bincount(table["round"], minlength=len(schedule.rounds))),
            "caption": captions(schedule),
        },
        "transfers": {name: column(table[name]) for name in ("src", "dst", "chunk", "count", "reduce")},
        "before": [runs_of(row[:shown]) for row in what.before(*shape)],
        "after": [runs_of(row[:shown]) for row in what.after(*shape)],
        "origin": None if what.reduces else column(what.origin(*shape)[:shown]),
        "problems": [_problem(problem) for problem in report.problems[:SHOWN_PROBLEMS]],
        "problem_count": len(report.problems),
        "left_out": _left_out(schedule, shown),
        "trace": trace_part(schedule, table, run.trace, SHOWN_RANKS) if run.trace else None,
        "cluster": cluster_part(schedule, cluster, simulation) if cluster and schedule.ranks <= SHOWN_RANKS else None,
    }


def _shown_transfers(schedule: Schedule, shown: int) -> dict[str, Ints]:
    """All transfers as columns; with fewer chunks shown than there are, those of the first chunks, cut to them."""
    table = schedule.columns()
    if shown < schedule.chunks:
        keep = np.flatnonzero(table["chunk"] < shown)
        table = {name: values[keep] for name, values in table.items()}
        table["count"] = np.minimum(table["count"], shown - table["chunk"])
    if len(table["src"]) > MOST_TRANSFERS:
        raise UsageError(
            f"{schedule.name or 'the schedule'} on {schedule.ranks} ranks has {len(table['src']):,} transfers of the"
            f" {shown} chunks that a page shows, and a page holds at most {MOST_TRANSFERS:,}; show fewer ranks",
            expected=MOST_TRANSFERS,
            got=len(table["src"]),
        )
    return table


def _left_out(schedule: Schedule, shown: int) -> str:
    parts = []
    if schedule.ranks > SHOWN_RANKS:
        parts.append(f"ranks 0 to {SHOWN_RANKS - 1} of {schedule.ranks:,}")
    if schedule.chunks > shown:
        parts.append(f"chunks 0 to {shown - 1} of {schedule.chunks:,}")
    if not parts:
        return ""
    return f"Of this schedule the page shows {' and '.join(parts)}; written as .json, it has all of it."


def _problem(problem: Problem) -> dict[str, Any]:
    """A problem; the page says the round itself, in bold."""
    return {
        "rule": problem.rule,
        "message": problem.message.removeprefix(f"round {problem.round + 1}: "),
        "rank": problem.rank,
        "round": problem.round,
        "chunk": problem.chunk,
        "expected": problem.expected,
        "got": problem.got,
        "waits": [list(pair) for pair in problem.waits],
    }
