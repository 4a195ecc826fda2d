"""``farandole show``: what every rank holds, round by round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farandole.cli import _options as options
from farandole.cli._output import is_terminal, print_json, print_note, print_text
from farandole.cli._schedules import schedule_of
from farandole.errors import UsageError

if TYPE_CHECKING:
    from farandole.schedule import Schedule

EXAMPLES = (
    "farandole show ring --ranks 4",
    "farandole show binomial --collective broadcast --ranks 8 --root 3",
    "farandole show hierarchical:levels=4x2 --ranks 8 -o player.html",
    "farandole show halving_doubling --ranks 8 -o schedule.json",
)


def show(
    algorithm: options.Algorithm,
    ranks: options.Ranks = None,
    collective: options.Collective = None,
    root: options.Root = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to a .html, .json or .txt file.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Leave nothing out, however large the world.")] = False,
    json: options.Json = False,
) -> None:
    """Show the table of what every rank holds after every round.

    a0 is rank 0's contribution to chunk a, a0..a3 are those of ranks 0 to 3, reduced. What has just arrived is
    marked with >, and what must be there at the end with *. A .html file is a player, to step through offline.
    """
    schedule = schedule_of(algorithm, ranks, collective, root)
    from farandole.verify import verify_schedule  # noqa: PLC0415 - loads NumPy

    report = verify_schedule(schedule)
    if not report.ok:
        print_note(f"note: this schedule is wrong: {report.problems[0].message} (farandole verify says more)")
    if output is not None:
        _writer(output)(schedule, output)
        print_note(f"wrote {output}")
    if json:
        from farandole.export.json import schedule_to_json  # noqa: PLC0415

        print_json("show", {"kind": "computed", **schedule_to_json(schedule)})
    elif output is None:
        _print(schedule, everything=everything)


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


def _write_json(schedule: Schedule, path: Path) -> None:
    from farandole.export.json import write_schedule  # noqa: PLC0415 - loads NumPy

    write_schedule(schedule, path)


def _write_text(schedule: Schedule, path: Path) -> None:
    from farandole.show.table import Limits, show_table  # noqa: PLC0415 - loads NumPy

    path.write_text(f"{show_table(schedule, Limits.none(schedule))}\n", encoding="utf-8")


def _write_page(schedule: Schedule, path: Path) -> None:
    from farandole.show.page import page  # noqa: PLC0415 - loads NumPy

    path.write_text(page(schedule), encoding="utf-8")


_WRITERS: dict[str, Callable[[Schedule, Path], None]] = {
    ".html": _write_page,
    ".json": _write_json,
    ".txt": _write_text,
}


def _writer(path: Path) -> Callable[[Schedule, Path], None]:
    try:
        return _WRITERS[path.suffix]
    except KeyError:
        forms = ", ".join(_WRITERS)
        raise UsageError(f"a schedule is written to a file that ends with {forms}, not to {path.name!r}") from None
