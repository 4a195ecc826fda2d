"""``farandole show``: what every rank holds, round by round."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farandole.cli import _options as options
from farandole.cli._output import is_terminal, print_json, print_note, print_text
from farandole.cli._pictures import Extras, open_page, write
from farandole.cli._progress import working
from farandole.cli._schedules import schedule_of
from farandole.cli._traces import read_trace
from farandole.errors import UsageError
from farandole.units import parse_size

if TYPE_CHECKING:
    from farandole.schedule import Schedule
    from farandole.trace import Trace

DEFAULT_SIZE_BYTES = 64 << 20

EXAMPLES = (
    "farandole show ring --ranks 4",
    "farandole show binomial --collective broadcast --ranks 8 --root 3",
    "farandole show hierarchical:levels=4x2 --ranks 8 -o player.html",
    "farandole show ring --ranks 8 --compare tree --cluster switch:8 --size 1MiB -o both.html",
    "farandole show --trace measured.json --cluster full:4@8GB/s,1us -o both.html",
    "farandole show ring --ranks 4 --moving -o ring.svg",
    "farandole show halving_doubling --ranks 8 -o schedule.json",
)


def show(
    algorithm: Annotated[
        str | None,
        typer.Argument(
            metavar="[ALGORITHM]", help=f"{options.ALGORITHM_HELP} A trace knows its own.", show_default=False
        ),
    ] = None,
    ranks: options.Ranks = None,
    collective: options.Collective = None,
    root: options.Root = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to a .html, .svg, .gif, .json, .perfetto.json or .txt file.",
            show_default=False,
        ),
    ] = None,
    in_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="For a page: simulate on this cluster, and show the time.", show_default=False),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            "-s",
            help="With --cluster: the whole buffer.  [default: that of the trace, or 64MiB]",
            show_default=False,
        ),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="For a page: show the time of this trace.", show_default=False)
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare", help="For a page: another algorithm, or a trace.json, beside it.", show_default=False
        ),
    ] = None,
    moving: Annotated[bool, typer.Option("--moving", help="For an .svg: one that moves, not a strip.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Leave nothing out, however large the world.")] = False,
    json: options.Json = False,
) -> None:
    """Show the table of what every rank holds after every round.

    a0 is rank 0's contribution to chunk a, a0..a3 are those of ranks 0 to 3, reduced. What has just arrived is
    marked with >, and what must be there at the end with *. A .html file is a player, to step through offline; with
    both --trace and --cluster it shows what was measured beside what is simulated. A .perfetto.json file is a trace
    for Perfetto or chrome://tracing.
    """
    traced = None if trace is None else read_trace(trace)
    schedule = schedule_of(algorithm, ranks, collective, root) if algorithm else _schedule_of_trace(traced)
    from farandole.verify import verify_schedule  # noqa: PLC0415 - loads NumPy

    with working("proving the schedule"):
        report = verify_schedule(schedule)
    if not report.ok:
        print_note(f"note: this schedule is wrong: {report.problems[0].message} (farandole verify says more)")
    size_bytes = parse_size(size) if size else traced.size_bytes if traced is not None else DEFAULT_SIZE_BYTES
    extras = Extras(cluster, size_bytes, traced, compare, moving)
    with working("drawing"):
        if in_browser:
            open_page(schedule, report, output, extras)
        elif output is not None:
            write(schedule, report, output, extras)
        else:
            extras.check("")
    if json:
        from farandole.export.json import schedule_to_json  # noqa: PLC0415

        print_json("show", {"kind": "computed", **schedule_to_json(schedule)})
    elif output is None and not in_browser:
        _print(schedule, everything=everything)


def _schedule_of_trace(traced: Trace | None) -> Schedule:
    """The schedule that a trace is of, if it is one of the table's."""
    if traced is None:
        raise UsageError("say which algorithm, or --trace FILE for that of a trace")
    try:
        return schedule_of(traced.name, traced.ranks, traced.collective, traced.root)
    except UsageError as error:
        raise UsageError(
            f"this trace is of {traced.name!r}, which is not in the table of algorithms ({error}); name the file that"
            " it is in before --trace",
            name=traced.name,
        ) from error


def _print(schedule: Schedule, *, everything: bool) -> None:
    from farandole.show.table import Limits, rich_table, show_table  # noqa: PLC0415 - loads NumPy

    if everything:
        print_text(show_table(schedule, Limits.none(schedule)))
    elif is_terminal():
        from rich.console import Console  # noqa: PLC0415 - slow to load, and for terminals only

        console = Console(highlight=False)
        console.print(rich_table(schedule, width=console.width))
    else:
        print_text(show_table(schedule))
