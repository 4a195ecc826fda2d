"""From what is written on the command line to a cluster and the settings of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farandole.errors import UsageError
from farandole.units import parse_time, parse_time_per_byte

if TYPE_CHECKING:
    from farandole.cluster import Cluster

Spec = Annotated[
    str,
    typer.Option("--cluster", help="Such as switch:8@100Gbit/s,2us or a file.toml; see farandole cluster --help."),
]
Slow = Annotated[
    list[str] | None,
    typer.Option("--slow", metavar="A-B:F", help="Multiply the bandwidth between two ranks, both ways; or LINK:F."),
]
Startup = Annotated[
    str | None, typer.Option("--startup", help="What a rank pays for each message, such as 1us.", show_default=False)
]
Reduce = Annotated[
    str | None, typer.Option("--reduce", help="How fast a rank reduces, such as 100GB/s.", show_default=False)
]


def cluster_of(
    spec: str, slow: Sequence[str] | None = None, startup: str | None = None, reduce: str | None = None
) -> Cluster:
    """The cluster of a spec, a file or this machine, with what is to be different about it."""
    from farandole.cluster import parse  # noqa: PLC0415 - loads NumPy
    from farandole.cluster.detect import detect  # noqa: PLC0415

    cluster = detect()[1] if spec == "detect" else parse(spec)
    for text in slow or ():
        where, colon, factor = text.rpartition(":")
        if not colon or not _is_number(factor):
            raise UsageError(f"a slow link is written 3-4:0.25 or LINK:0.25, not {text!r}", got=text)
        cluster = cluster.with_slow(where, float(factor))
    return cluster.with_costs(
        None if startup is None else parse_time(startup), None if reduce is None else parse_time_per_byte(reduce)
    )


def delays_of(texts: Sequence[str] | None) -> dict[int, float]:
    """``3:5ms`` and the like: by how many seconds which rank begins late."""
    delays: dict[int, float] = {}
    for text in texts or ():
        rank, colon, delay = text.partition(":")
        if not colon or not rank.isdecimal():
            raise UsageError(f"a delay is written RANK:TIME, such as 3:5ms, not {text!r}", got=text)
        delays[int(rank)] = parse_time(delay)
    return delays


def check_svg(path: Path | None) -> None:
    """Raise UsageError for a drawing that is no SVG or has no folder to go to, before any work is done."""
    if path is not None and path.suffix != ".svg":
        raise UsageError(f"what is drawn here is an SVG: name the file something.svg, not {path.name!r}", got=str(path))
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"there is no folder {str(path.parent)!r} to write {path.name!r} to", got=str(path))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
