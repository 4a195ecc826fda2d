"""``farandole explain``: which algorithm a call takes that asks for none, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from farandole.cli import _options as options
from farandole.cli._output import print_json, print_table, print_text
from farandole.units import counted, format_size, format_time, parse_size

EXAMPLES = (
    "farandole explain all_reduce --size 64KiB --ranks 4",
    "farandole explain broadcast --size 1MiB --ranks 8 --json",
    "FARANDOLE_PROFILE=off farandole explain all_gather --size 16MiB --ranks 2",
)


def explain(
    collective: Annotated[str, typer.Argument(metavar="COLLECTIVE", help="Such as all_reduce.", show_default=False)],
    size: Annotated[str, typer.Option("--size", "-s", help="The largest buffer of a rank: 8, 64KiB or 1MiB.")],
    ranks: Annotated[int, typer.Option("--ranks", "-n", min=1, metavar="N", help="How many ranks.")],
    json: options.Json = False,
) -> None:
    """Say which algorithm a call takes on this machine that asks for none, and why.

    What a profile has measured (see farandole tune) comes first, if it is of this machine and this number of ranks and
    has a size near to this one; else the built-in rule decides.
    """
    size_bytes = parse_size(size)
    import msgspec  # noqa: PLC0415 - for this command only

    from farandole.run.explain import explain as explained  # noqa: PLC0415 - loads NumPy

    found = explained(collective, size_bytes, ranks)
    if json:
        asked = {"collective": collective, "ranks": ranks, "size_bytes": size_bytes}
        kind = "measured" if found.measured else "computed"
        print_json("explain", {"kind": kind, **asked, **msgspec.to_builtins(found)})
        return
    print_text(f"{collective} of {format_size(size_bytes)} on {counted(ranks, 'rank')}: {found.algorithm or 'nothing'}")
    print_text(found.reason)
    if found.measured:
        fastest = found.measured[0].median_s
        rows = [
            [
                row.algorithm,
                format_time(row.median_s),
                f"{format_time(row.low_s)} - {format_time(row.high_s)}",
                f"{row.median_s / fastest:.2f}",
                row.rounds,
            ]
            for row in found.measured
        ]
        print_table(["measured", "median", "quartiles", "x fastest", "rounds"], rows)
