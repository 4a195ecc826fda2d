"""``farandole bench``: farandole beside the other libraries of this machine, in one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farandole.cli import _options as options
from farandole.cli._clusters import check_svg
from farandole.cli._output import print_json, print_note, print_table, print_text
from farandole.cli._progress import progress
from farandole.errors import UnknownNameError, UsageError
from farandole.units import format_bandwidth, parse_sizes, parse_time

if TYPE_CHECKING:
    from farandole.bench.peers import Library, Missing

DTYPES = ("float32", "float64", "int32", "int64")
_EVERY_PEER = "gloo,openmpi,mpich,intelmpi"
_USUAL = {
    "numpy": "all_reduce,reduce_scatter,all_gather",
    "torch": "all_reduce,reduce_scatter,all_gather,all_to_all",
}

EXAMPLES = (
    "farandole bench --ranks 2 --sizes 8:1MiB*8 --against gloo",
    "farandole bench --ranks 2,4,8 --sizes 8:128MiB --against gloo,openmpi,mpich,intelmpi --peers peers",
    "farandole bench --via torch --against gloo --ranks 2 --sizes 8:128MiB*4",
    "farandole bench --collective all_reduce --json --plot bench.svg",
)


def bench(
    ranks: Annotated[str, typer.Option("--ranks", "-n", help="Numbers of ranks, one job of each.")] = "2,4,8",
    sizes: Annotated[
        str, typer.Option("--sizes", "-s", help="Sizes of the largest buffer of a rank: 8:128MiB, or 1KiB,1MiB.")
    ] = "8:128MiB*4",
    against: Annotated[
        list[str] | None,
        typer.Option("--against", help=f"Whom to compare with.  [default: {_EVERY_PEER}]", show_default=False),
    ] = None,
    collective: Annotated[
        list[str] | None,
        typer.Option(
            "--collective",
            "-c",
            help=f"What is to be done: {_USUAL['torch']}; all_to_all only if asked for, or by --via torch.",
            show_default=False,
        ),
    ] = None,
    via: Annotated[
        str, typer.Option("--via", help="numpy: arrays and mpi4py; torch: tensors and torch.distributed.")
    ] = "numpy",
    dtype: Annotated[str, typer.Option("--dtype", help=f"The type of the elements: {', '.join(DTYPES)}.")] = "float32",
    algorithm: Annotated[str, typer.Option("--algorithm", help="The algorithm of farandole.")] = "auto",
    peers: Annotated[
        Path | None,
        typer.Option("--peers", help="A folder with MPI libraries, each in one of its own.", show_default=False),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often each library has its turn.")] = 5,
    batch: Annotated[str, typer.Option("--batch", help="About how long a turn is timed for.")] = "50ms",
    timeout: Annotated[str, typer.Option("--timeout", help="When to give up a library that does not answer.")] = "60s",
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write a picture to this file.svg.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """Compare farandole with Gloo and MPI libraries on this machine, and print the times and their ratios.

    Each library runs in processes of its own. They take turns, batch by batch, while the others sleep, so that whatever
    else this machine does happens to all. Calls are made back to back, as users of that library make them; every
    result is checked. A ratio is their time over ours: above 1, farandole is faster.

    A library that is not installed is named, with the line that installs it, and left out. The exit status is 1 if any
    result is wrong.
    """
    check_svg(plot)
    size_list, batch_s, timeout_s = parse_sizes(sizes), parse_time(batch), parse_time(timeout)
    from farandole.bench import machine, report  # noqa: PLC0415 - loads NumPy
    from farandole.bench.patterns import COLLECTIVES  # noqa: PLC0415
    from farandole.bench.peers import VIAS, ours  # noqa: PLC0415
    from farandole.bench.plot import plot as draw  # noqa: PLC0415
    from farandole.bench.sweep import Plan, run_sweep  # noqa: PLC0415

    _check(dtype, DTYPES, "type of elements that is compared")
    _check(via, VIAS, "way to compare")
    collectives = _names(",".join(collective or [_USUAL[via]]))
    for name in collectives:
        _check(name, COLLECTIVES, "collective that is compared")
    counts = _counts(ranks)
    found, missing = _found(_names(",".join(against or [_EVERY_PEER])), via, peers)
    for entry in missing:
        print_note(f"{entry.library} is left out: {entry.reason}: {entry.remedy}")
    plan = Plan(
        libraries=[ours(via, algorithm, timeout_s), *found],
        ranks=counts,
        collectives=collectives,
        sizes=size_list,
        dtype=dtype,
        rounds=rounds,
        batch_s=batch_s,
        timeout_s=timeout_s,
    )
    facts = machine.facts()
    with progress(plan.batches + len(plan.ranks) * len(plan.libraries)) as advance:
        sweep = run_sweep(plan, advance)
    for entry in sweep.missing:
        print_note(f"{entry.library} is left out: {entry.reason}; {entry.remedy}")
    sweep.missing[:0] = missing
    parameters = {
        "ranks": plan.ranks,
        "sizes_bytes": plan.sizes,
        "collectives": plan.collectives,
        "libraries": [library.name for library in plan.libraries],
        "via": via,
        "dtype": dtype,
        "algorithm": algorithm,
        "rounds": rounds,
        "batch_s": batch_s,
    }
    whole = report.as_json(sweep, facts, parameters)
    if plot is not None:
        plot.write_text(draw(whole["results"]))
    if json:
        print_json("bench", whole)
    else:
        _print(whole)
    wrong = [row for row in sweep.measured if not row.checked]
    for row in wrong:
        print_note(
            f"{row.library}, {row.collective} of {row.size_bytes} bytes on {row.ranks} ranks: the result is wrong"
        )
    if wrong:
        raise typer.Exit(1)


def _found(names: list[str], via: str, folder: Path | None) -> tuple[list[Library], list[Missing]]:
    from farandole.bench.peers import Missing, find  # noqa: PLC0415

    all_of_them = [find(name, via, folder) for name in names]
    missing = [entry for entry in all_of_them if isinstance(entry, Missing)]
    return [entry for entry in all_of_them if not isinstance(entry, Missing)], missing


def _names(text: str) -> list[str]:
    """The names in a list with commas, each once; the list may be empty."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _counts(text: str) -> list[int]:
    names = _names(text)
    if not names or not all(name.isdecimal() and int(name) > 0 for name in names):
        raise UsageError(f"numbers of ranks are written 2,4,8, not {text!r}", got=text)
    return [int(name) for name in names]


def _check(name: str, known: tuple[str, ...], what: str) -> None:
    if name not in known:
        raise UnknownNameError(what, name, known)


def _print(report: dict[str, Any]) -> None:
    from farandole.bench.report import mean_rows, tables  # noqa: PLC0415

    machine, parameters = report["machine"], report["parameters"]
    copies = {where: format_bandwidth(speed) for where, speed in machine["copy"].items()}
    print_text(f"measured on {machine['cpu']}, {machine['cores']} cores, {machine['kernel']}")
    print_text(
        f"copying memory: {copies['in_cache']} in cache, {copies['out_of_cache']} out of it, "
        f"{copies['out_of_cache_all_cores']} by all cores together"
    )
    print_text(", ".join(f"{name} {version}" for name, version in machine["versions"].items()))
    for title, headings, rows in tables(report):
        print_text(f"\n{title}, {parameters['dtype']}: median time (their time / ours)")
        print_table(headings, rows)
    if report["geomean"]:
        print_text("\ntheir time / ours; above 1, farandole is faster")
        print_table(*mean_rows(report))
