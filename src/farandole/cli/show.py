"""``farandole show``: what every rank holds, round by round."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from farandole.cli import _options as options
from farandole.cli._output import is_terminal, print_json, print_note, print_text
from farandole.cli._schedules import schedule_of
from farandole.errors import UsageError

EXAMPLES = (
    "farandole show ring --ranks 4",
    "farandole show binomial --collective broadcast --ranks 8 --root 3",
    "farandole show halving_doubling --ranks 8 -o schedule.json",
)


def show(
    algorithm: options.Algorithm,
    ranks: options.Ranks = None,
    collective: options.Collective = None,
    root: options.Root = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to a .json or .txt file.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Leave nothing out, however large the world.")] = False,
    json: options.Json = False,
) -> None:
    """Show the table of what every rank holds after every round.

    a0 is rank 0's contribution to chunk a, a0..a3 are those of ranks 0 to 3, reduced. What has just arrived is
    marked with >, and what must be there at the end with *.
    """
    schedule = schedule_of(algorithm, ranks, collective, root)
    from farandole.export.json import schedule_to_json, write_schedule  # noqa: PLC0415 - loads NumPy
    from farandole.show.table import Limits, rich_table, show_table  # noqa: PLC0415
    from farandole.verify import verify_schedule  # noqa: PLC0415

    report = verify_schedule(schedule)
    if not report.ok:
        print_note(f"note: this schedule is wrong: {report.problems[0].message} (farandole verify says more)")
    whole = Limits(schedule.ranks, schedule.chunks, len(schedule.rounds))
    if output is not None:
        if output.suffix == ".json":
            write_schedule(schedule, output)
        elif output.suffix == ".txt":
            output.write_text(f"{show_table(schedule, whole)}\n", encoding="utf-8")
        else:
            raise UsageError(f"a file to show a schedule in ends with .json or .txt, not {output.name!r}")
        print_note(f"wrote {output}")
    if json:
        print_json("show", {"kind": "computed", **schedule_to_json(schedule)})
    elif output is None and is_terminal() and not everything:
        from rich.console import Console  # noqa: PLC0415 - slow to load, and for terminals only

        console = Console(highlight=False)
        console.print(rich_table(schedule, width=console.width))
    elif output is None:
        print_text(show_table(schedule, whole if everything else None))
