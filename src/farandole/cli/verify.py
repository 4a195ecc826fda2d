"""``farandole verify``: prove that an algorithm does what its collective promises."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from farandole.cli import _options as options
from farandole.cli._output import print_json, print_note, print_table, print_text
from farandole.cli._progress import working
from farandole.cli._schedules import schedule_of
from farandole.units import counted, format_time

if TYPE_CHECKING:
    from farandole.schedule import Schedule
    from farandole.verify import Problem, Report

EXAMPLES = (
    "farandole verify ring --ranks 8",
    "farandole verify bruck --collective all_gather --ranks 12",
    "farandole verify ring --ranks 8 --order send-first --depth 0",
    "farandole verify my_schedule.json",
)

_SHOWN = 20
_SMALL = 50_000  # transfers whose program is proven within a few seconds


def verify(
    algorithm: options.Algorithm,
    ranks: options.Ranks = None,
    collective: options.Collective = None,
    root: options.Root = None,
    depth: Annotated[
        int | None,
        typer.Option("--depth", min=0, help="Prove it for queues of so many slots alone; 0 is rendezvous."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            "--order",
            help="How a rank orders its sends and receives: send-first, recv-first, even-odd or sendrecv."
            "  [default: sendrecv]",
            show_default=False,
        ),
    ] = None,
    fuse: Annotated[
        bool, typer.Option("--fuse", help="Pass on what is received in the step that receives it.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Prove that every rank ends with what it should, or list everything that is wrong.

    First the schedule is proven, then the program that each rank runs for it: over every interleaving it must not
    deadlock, have no race, and compute the same. Without --depth, the smallest depth of queue is found at which it
    cannot deadlock. The exit status is 0 for a proof and 1 for a rejection.
    """
    schedule = schedule_of(algorithm, ranks, collective, root)
    from farandole.verify import verify_schedule  # noqa: PLC0415 - loads NumPy

    begin = time.perf_counter()
    is_asked_for = depth is not None or order is not None or fuse
    program = None
    with working("proving"):
        report = verify_schedule(schedule)
        if report.ok and (is_asked_for or report.transfers <= _SMALL):
            program = _program_report(schedule, order or "sendrecv", depth, fuse=fuse)
    time_s = time.perf_counter() - begin

    problems = [*report.problems, *(program.problems if program else ())]
    if json:
        about = {"algorithm": schedule.name or algorithm, "collective": schedule.collective, "ranks": schedule.ranks}
        checked = {"order": order or "sendrecv", "fuse": fuse, "depth": depth} if program else None
        outcome = {
            "ok": not problems,
            "problems": [asdict(problem) for problem in problems],
            "smallest_safe_depth": program.smallest_safe_depth if program else None,
            "program": checked,
            "transfers": report.transfers,
            "time_s": time_s,
        }
        print_json("verify", {"kind": "computed", **about, **outcome})
    else:
        what = f"{schedule.name or algorithm}: {schedule.collective} on {counted(schedule.ranks, 'rank')}"
        checked_in = f"{counted(report.transfers, 'transfer')} in {counted(len(schedule.rounds), 'round')}"
        verdict = "correct" if report.ok else "wrong"
        print_text(f"{what} is {verdict} ({checked_in}, checked in {format_time(time_s)})")
        if program:
            print_text(_about_program(program, order or "sendrecv", depth, fuse=fuse))
        _print_problems(problems)
    if report.ok and not program:
        print_note(f"the programs were not proven, since {report.transfers} transfers take long; --order asks for it")
    if problems:
        raise typer.Exit(1)


def _program_report(schedule: Schedule, order: str, depth: int | None, *, fuse: bool) -> Report:
    from farandole.lower import lower  # noqa: PLC0415 - loads NumPy
    from farandole.verify import verify_program  # noqa: PLC0415

    return verify_program(lower(schedule, order, fuse), depth)


def _about_program(report: Report, order: str, depth: int | None, *, fuse: bool) -> str:
    smallest = report.smallest_safe_depth
    if smallest is None:
        safe = "no depth of queue is safe"
    else:
        safe = f"smallest safe queue depth {smallest}{' (rendezvous)' if smallest == 0 else ''}"
    at = "" if depth is None else f", with queues of depth {depth}"
    fault = "rejected" if report.problems else "no deadlock, no race"
    return f"as programs, {order}{', fused' if fuse else ''}{at}: {fault}; {safe}"


def _print_problems(problems: list[Problem]) -> None:
    if problems:
        print_table(["rule", "message"], [[problem.rule, problem.message] for problem in problems[:_SHOWN]])
    if len(problems) > _SHOWN:
        print_text(f"and {len(problems) - _SHOWN} more; --json has them all")
