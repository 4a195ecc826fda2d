"""``farandole list``: the algorithms that there are."""

from __future__ import annotations

from typing import Annotated

import typer

from farandole.cli import _options as options
from farandole.cli._output import print_json, print_table

EXAMPLES = (
    "farandole list",
    "farandole list --collective broadcast",
)


def list_(
    collective: Annotated[
        str | None, typer.Option("--collective", "-c", help="Only those for this collective.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """List the algorithms, with their options, rounds and traffic.

    n is the number of ranks and S the size of the buffer; log is the binary logarithm.
    """
    from farandole.algorithms import REGISTRY  # noqa: PLC0415 - loads NumPy
    from farandole.collectives import COLLECTIVES  # noqa: PLC0415
    from farandole.collectives import collective as find  # noqa: PLC0415

    chosen = [find(collective).name] if collective else list(COLLECTIVES)
    entries = [entry for name in chosen for entry in REGISTRY.values() if entry.collective == name]
    if json:
        keys = ("name", "collective", "options", "rounds", "bytes_per_rank", "paper", "summary")
        rows = [{key: getattr(entry, key) for key in keys} for entry in entries]
        print_json("list", {"kind": "computed", "algorithms": rows})
        return
    print_table(
        ["collective", "algorithm", "rounds", "bytes sent per rank", "options"],
        [
            [entry.collective, entry.name, entry.rounds, entry.bytes_per_rank, ", ".join(entry.options) or "-"]
            for entry in entries
        ],
    )
