"""``farandole inspect``: what the ranks of a running or hung job are doing."""

from __future__ import annotations

from typing import Annotated

import typer

from farandole.cli import _options as options
from farandole.cli._output import print_json, print_table, print_text

EXAMPLES = (
    "farandole inspect 4711",
    "farandole inspect --all --json",
    "farandole inspect 4711 --last 20",
)


def inspect(
    pid: Annotated[
        int | None,
        typer.Argument(metavar="PID", min=1, help="The process of one of the ranks.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All jobs of this user on this host.")] = False,
    last: Annotated[
        int, typer.Option("--last", min=0, metavar="N", help="How many of each rank's last calls to print.")
    ] = 3,
    json: options.Json = False,
) -> None:
    """Show what the ranks of a job are doing, who waits for whom, and their last calls.

    It reads the flight recorder in the memory that the ranks share. The job need not answer, is not stopped and not
    slowed down, and needs no preparation. Only processes of the same user can be read, unless root asks.
    """
    from farandole.errors import UsageError  # noqa: PLC0415 - what follows loads NumPy
    from farandole.run import outside, sight  # noqa: PLC0415

    if (pid is None) == (not everything):
        raise UsageError("give the PID of a rank, or --all")
    found = outside.of_user() if pid is None else outside.of_process(pid)
    if pid is not None and not found:
        raise UsageError(f"process {pid} is in no communicator of farandole", pid=pid)
    seen = [sight.see(communicator) for communicator in found]
    if json:
        print_json("inspect", {"kind": "measured", **sight.as_json(seen)})
        return
    if not seen:
        print_text("no process of this user is in a communicator of farandole")
    for number, each in enumerate(seen):
        print_text(("\n" if number else "") + sight.heading(each))
        print_table(sight.HEADINGS, sight.rows(each))
        for sentence in each.verdict:
            print_text(sentence)
        if last:
            print_text("\nlast calls, the newest first:")
            print_table(sight.CALL_HEADINGS, sight.call_rows(each, last))
