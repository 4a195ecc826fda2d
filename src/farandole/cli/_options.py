"""The arguments and options that several commands have in common."""

from __future__ import annotations

from typing import Annotated

import typer

ALGORITHM_HELP = (
    "NAME[:option=value,...], such as ring:order=0,2,1,3; or a schedule.json; or FILE.py:NAME, an algorithm of yours."
)

Algorithm = Annotated[str, typer.Argument(metavar="ALGORITHM", help=ALGORITHM_HELP, show_default=False)]
Ranks = Annotated[
    int | None,
    typer.Option(
        "--ranks", "-n", min=1, metavar="N", help="How many ranks; a schedule.json knows it.", show_default=False
    ),
]
Collective = Annotated[
    str | None,
    typer.Option("--collective", "-c", help="What is to be done.  [default: all_reduce]", show_default=False),
]
Root = Annotated[
    int | None, typer.Option("--root", help="The root, where there is one.  [default: 0]", show_default=False)
]
Dtype = Annotated[str, typer.Option("--dtype", help="The type of the elements.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
