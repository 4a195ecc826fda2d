"""``farandole compare``: all algorithms of a collective on a cluster, over sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from farandole.cli import _options as options
from farandole.cli._clusters import Reduce, Slow, Spec, Startup, check_svg, cluster_of
from farandole.cli._output import print_json, print_note, print_table, print_text
from farandole.cli._progress import progress
from farandole.cli._schedules import DEFAULT
from farandole.units import counted, format_size, format_time, parse_sizes

EXAMPLES = (
    "farandole compare --cluster dgx-h100:4 --sizes 1KiB:1GiB*4",
    "farandole compare --cluster hosts:4x8 --collective all_gather --sizes 1MiB",
    "farandole compare --cluster switch:64@100Gbit/s,2us --sizes 1KiB:1GiB -o crossovers.svg",
)


def compare(
    cluster: Spec,
    sizes: Annotated[str, typer.Option("--sizes", help="1KiB:1GiB, 1KiB:1GiB*4, or 1KiB,1MiB.")] = "1KiB:1GiB*4",
    algorithm: Annotated[
        list[str] | None, typer.Option("--algorithm", "-a", help="Only this one; may be given several times.")
    ] = None,
    ranks: options.Ranks = None,
    collective: options.Collective = None,
    root: options.Root = None,
    slow: Slow = None,
    startup: Startup = None,
    reduce: Reduce = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a plot to this .svg file.")] = None,
    json: options.Json = False,
) -> None:
    """Simulate every algorithm at every size, and say which is the fastest where.

    Times are simulated by the rules of docs/simulation.md; a time in brackets is the fastest of its size.
    """
    size_list = parse_sizes(sizes)
    check_svg(output)
    from farandole import simulate  # noqa: PLC0415 - loads NumPy
    from farandole.simulate.compare import candidates, to_svg  # noqa: PLC0415

    described = cluster_of(cluster, slow, startup, reduce)
    what = collective or DEFAULT
    names = algorithm or candidates(what, described.first(ranks or described.ranks))
    with progress(len(names)) as advance:
        compared = simulate.compare(
            what, described, size_list, algorithms=names, ranks=ranks, root=root or 0, begins=advance
        )
    best = compared.best()
    if output is not None:
        output.write_text(to_svg(compared), encoding="utf-8")
        print_note(f"plotted to {output}")
    if json:
        results = [
            {"algorithm": name, "size_bytes": r.size_bytes, "time_s": r.time_s, "algbw": r.algbw, "busbw": r.busbw,
             "note": r.note}
            for name, simulations in compared.results.items()
            for r in simulations
        ]  # fmt: skip
        bests = [{"size_bytes": size, "algorithm": name} for size, name in zip(size_list, best, strict=True)]
        about = {"collective": compared.collective, "cluster": described.name, "ranks": compared.cluster.ranks}
        print_json("compare", {"kind": "simulated", **about, "results": results, "best": bests})
        return
    where = f"{counted(compared.cluster.ranks, 'rank')} of {described.name}"
    print_text(f"{compared.collective} on {where}, simulated")
    rows = [
        [format_size(size)]
        + [
            f"[{format_time(results[i].time_s)}]" if name == best[i] else format_time(results[i].time_s)
            for name, results in compared.results.items()
        ]
        for i, size in enumerate(size_list)
    ]
    print_table(["size", *compared.results], rows)
    for first, last, name in compared.spans():
        reach = format_size(first) if first == last else f"{format_size(first)} to {format_size(last)}"
        print_text(f"{reach}: {name}")
    for note in dict.fromkeys(r.note for simulations in compared.results.values() for r in simulations if r.note):
        print_text(f"note: {note}")
