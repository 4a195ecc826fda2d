"""``farandole verify``: prove that an algorithm does what its collective promises."""

from __future__ import annotations

import time
from dataclasses import asdict

import typer

from farandole.cli import _options as options
from farandole.cli._output import print_json, print_table, print_text
from farandole.cli._schedules import schedule_of
from farandole.units import counted, format_time

SHOWN = 20

EXAMPLES = (
    "farandole verify ring --ranks 8",
    "farandole verify bruck --collective all_gather --ranks 12",
    "farandole verify my_schedule.json",
)


def verify(
    algorithm: options.Algorithm,
    ranks: options.Ranks = None,
    collective: options.Collective = None,
    root: options.Root = None,
    json: options.Json = False,
) -> None:
    """Prove that every rank ends with what it should, or list everything that is wrong.

    The exit status is 0 for a proof and 1 for a rejection.
    """
    schedule = schedule_of(algorithm, ranks, collective, root)
    from farandole.verify import verify_schedule  # noqa: PLC0415 - loads NumPy

    begin = time.perf_counter()
    report = verify_schedule(schedule)
    time_s = time.perf_counter() - begin
    if json:
        print_json(
            "verify",
            {
                "kind": "computed",
                "algorithm": schedule.name or algorithm,
                "collective": schedule.collective,
                "ranks": schedule.ranks,
                "ok": report.ok,
                "problems": [asdict(problem) for problem in report.problems],
                "smallest_safe_depth": report.smallest_safe_depth,
                "transfers": report.transfers,
                "time_s": time_s,
            },
        )
    else:
        what = f"{schedule.name or algorithm}: {schedule.collective} on {counted(schedule.ranks, 'rank')}"
        checked = f"{counted(report.transfers, 'transfer')} in {counted(len(schedule.rounds), 'round')}"
        verdict = "correct" if report.ok else "wrong"
        print_text(f"{what} is {verdict} ({checked}, checked in {format_time(time_s)})")
        if not report.ok:
            print_table(["rule", "message"], [[p.rule, p.message] for p in report.problems[:SHOWN]])
            if len(report.problems) > SHOWN:
                print_text(f"and {len(report.problems) - SHOWN} more; --json has them all")
    if not report.ok:
        raise typer.Exit(1)
