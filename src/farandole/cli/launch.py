"""``farandole launch``: start the ranks of a script on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from farandole.cli._output import print_note
from farandole.units import parse_time

EXAMPLES = (
    "farandole launch -n 4 train.py --epochs 3",
    "farandole launch -n 4 --tag -m package.module --verbose",
    "farandole launch -n 2 --timeout 60s ./program 8",
)
# What comes after the script is the script's, whatever it looks like.
SETTINGS = {"context_settings": {"allow_interspersed_args": False}}


def launch(
    target: Annotated[
        str,
        typer.Argument(metavar="SCRIPT", help="A Python script (.py), or any other program.", show_default=False),
    ],
    ranks: Annotated[
        int, typer.Option("--ranks", "-n", min=1, metavar="N", help="How many processes to start.", show_default=False)
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="Handed to the script as they are.", show_default=False),
    ] = None,
    module: Annotated[
        bool, typer.Option("--module", "-m", help="SCRIPT is the name of a Python module, as for python -m.")
    ] = False,
    tag: Annotated[bool, typer.Option("--tag", "-t", help="Write whole lines, each with [RANK] before it.")] = False,
    go_on: Annotated[
        bool, typer.Option("--go-on", help="When a rank fails, let the others go on: for ranks that shrink.")
    ] = False,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", help="Stop the job after this time, such as 90s.", show_default=False),
    ] = None,
    grace: Annotated[
        str, typer.Option("--grace", help="How long ranks that are told to end have before they are killed.")
    ] = "10s",
) -> None:
    """Start N processes of a script, which find each other by farandole.init().

    torch.distributed finds its variables as well. Ranks write straight to the terminal unless --tag is given.
    Rank 0 reads standard input if that is a file or a pipe. Unless OMP_NUM_THREADS is set, the ranks share the cores.

    When a rank fails, the others are told to end (SIGTERM), and killed if they do not; its exit status is that of
    this command. With --go-on the others go on, and the exit status is 0 if any rank ends with 0. Ctrl-C reaches every
    rank, a second one kills them, and the exit status is 130. A job whose time is up ends with 124. No rank, and
    nothing that a rank has started, is left behind, however this command ends.
    """
    from farandole.run import launch as run  # noqa: PLC0415 - not needed for --help

    status = run.launch(
        ranks,
        run.python_command(target, arguments or [], is_module=module),
        tag=tag,
        go_on=go_on,
        timeout_s=None if timeout is None else parse_time(timeout),
        grace_s=parse_time(grace),
        note=lambda text: print_note(f"farandole launch: {text}"),
    )
    raise typer.Exit(status)
