"""``farandole top``: a live table of what all jobs are doing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from farandole.cli._output import is_terminal, print_table, print_text
from farandole.units import format_bandwidth, parse_time

if TYPE_CHECKING:
    from rich.table import Table

    from farandole.run.outside import Communicator

EXAMPLES = (
    "farandole top",
    "farandole top --interval 200ms",
    "farandole top --once",
)
HEADINGS = ("pid", "rank", "state", "calls/s", "sent/s", "received/s", "waiting", "waits for", "call")

Row = Sequence[str]


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one table and end, as into a pipe or a file.")] = False,
    interval: Annotated[str, typer.Option("--interval", help="The time between two looks.")] = "1s",
) -> None:
    """Show how fast the ranks of all jobs of this user are, and what they do; Ctrl-C ends it.

    Rates are of the time between two looks; sent is what a rank wrote for others to read, received what it read of
    theirs (long calls count while they go on), and waiting the part of the time in which it waited for another rank.
    """
    interval_s = max(parse_time(interval), 0.01)
    if once or not is_terminal():
        found, before = _look({})
        time.sleep(interval_s)
        found, _ = _look(before)
        print_table(HEADINGS, found) if found else print_text("no process of this user is in a communicator")
        return
    from rich.live import Live  # noqa: PLC0415 - slow to load, and for terminals only

    rows, before = _look({})
    with Live(_table(rows), auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            rows, before = _look(before)
            live.update(_table(rows), refresh=True)


def _look(before: dict[int, Communicator]) -> tuple[list[Row], dict[int, Communicator]]:
    """The rows of a look at all communicators, and the look itself, by number; rates are since ``before``."""
    from farandole.run import outside  # noqa: PLC0415 - loads NumPy

    now = {found.number: found for found in outside.of_user()}
    return [row for number, found in now.items() for row in _rows(found, before.get(number))], now


def _rows(found: Communicator, before: Communicator | None) -> list[Row]:
    from farandole.run.hosting import spell  # noqa: PLC0415
    from farandole.run.rates import rates  # noqa: PLC0415
    from farandole.run.verdict import ranks_of  # noqa: PLC0415

    flight = found.flight
    each = rates(flight if before is None else before.flight, flight)
    rows: list[Row] = []
    for rank, rate in zip(ranks_of(flight, found.processes), each, strict=True):
        stopped = ", stopped" if rank.process.state == "T" else ""
        rows.append(
            (
                str(rank.pid),
                f"{rank.rank}/{flight.size}",
                f"{rank.state}{stopped}",
                f"{rate.calls:.0f}",
                format_bandwidth(rate.sent) if rate.sent else "0",
                format_bandwidth(rate.received) if rate.received else "0",
                f"{rate.waiting:.0%}",
                spell(rank.waits_for) if rank.waits_for else "-",
                f"#{rank.seq} {rank.call}" if rank.call else "-",
            )
        )
    return rows


def _table(rows: Sequence[Row]) -> Table:
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(*HEADINGS, box=box.SIMPLE_HEAD, pad_edge=False, caption="Ctrl-C ends this", caption_justify="left")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
