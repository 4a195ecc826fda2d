"""``farandole simulate``: how long an algorithm takes on a cluster that need not exist, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farandole.cli import _options as options
from farandole.cli._clusters import Reduce, Slow, Spec, Startup, cluster_of, delays_of
from farandole.cli._output import print_json, print_table, print_text
from farandole.cli._progress import working
from farandole.cli._schedules import DEFAULT, schedule_of
from farandole.cli._traces import write_trace
from farandole.errors import UsageError
from farandole.units import counted, format_bandwidth, format_size, format_time, parse_size, parse_time

if TYPE_CHECKING:
    from farandole.simulate import Simulation

EXAMPLES = (
    "farandole simulate ring --cluster dgx-h100:16 --size 1GiB",
    "farandole simulate ring --cluster ring:8@50GB/s --size 64MiB --slow 3-4:0.25",
    "farandole simulate tree --cluster hosts:4x8 --size 64MiB --slices 16 --in-flight 2",
    "farandole simulate direct --cluster switch:100000@100Gbit/s,2us --size 1GiB",
)


def simulate(
    algorithm: options.Algorithm,
    cluster: Spec,
    size: Annotated[str, typer.Option("--size", "-s", help="The whole buffer: 8, 64KiB, 1MiB or 1GB.")] = "64MiB",
    ranks: options.Ranks = None,
    collective: options.Collective = None,
    root: options.Root = None,
    slow: Slow = None,
    startup: Startup = None,
    reduce: Reduce = None,
    delay: Annotated[
        list[str] | None, typer.Option("--delay", metavar="RANK:TIME", help="A rank begins late: 3:5ms.")
    ] = None,
    jitter: Annotated[str, typer.Option("--jitter", help="Mean of a random extra start-up cost per message.")] = "0s",
    seed: Annotated[int, typer.Option("--seed", min=0, help="What the jitter is drawn from.")] = 0,
    slices: Annotated[int, typer.Option("--slices", min=1, help="Pieces of the buffer that pipeline.")] = 1,
    in_flight: Annotated[int, typer.Option("--in-flight", min=0, help="Slices under way at a rank; 0: all.")] = 0,
    trace: Annotated[Path | None, typer.Option("--trace", help="Write what happened when to this .json file.")] = None,
    json: options.Json = False,
) -> None:
    """Simulate an algorithm on a cluster: time, algbw, busbw, the load of every link, and the critical path.

    Messages are flows over their routes and share links fairly; docs/simulation.md has the rules. Without --ranks,
    every rank of the cluster takes part.
    """
    size_bytes, jitter_s, delays = parse_size(size), parse_time(jitter), delays_of(delay)
    from farandole import simulate as simulator  # noqa: PLC0415 - loads NumPy

    described = cluster_of(cluster, slow, startup, reduce)
    settings = simulator.Settings(
        delays=delays, jitter_s=jitter_s, seed=seed, slices=slices, in_flight=in_flight
    )  # fmt: skip
    itemsize = 1 if size_bytes % 4 else 4
    with working("simulating"):
        if ".json" in algorithm or ".py" in algorithm:
            schedule = schedule_of(
                algorithm, ranks or (None if ".json" in algorithm else described.ranks), collective, root
            )
            result = simulator.simulate(
                schedule, described, size_bytes, settings=settings, itemsize=itemsize, trace=trace is not None
            )
        else:
            result = simulator.predict(
                collective or DEFAULT, algorithm, described, size_bytes, ranks=ranks, root=root or 0, settings=settings,
                itemsize=itemsize, trace=trace is not None,
            )  # fmt: skip
    if trace is not None:
        if result.trace is None:
            raise UsageError("this simulation keeps no trace", got=str(trace))
        write_trace(result.trace, trace)
    if json:
        print_json("simulate", result.to_dict())
    else:
        _print(result)


def _print(result: Simulation) -> None:
    from farandole.bandwidth import FACTORS  # noqa: PLC0415

    where = f"{counted(result.ranks, 'rank')} of {result.cluster.name}"
    size = format_size(result.size_bytes)
    size = f"{size} bytes" if size.isdecimal() else size
    print_text(f"{result.name}: {result.collective} of {size} on {where}, simulated")
    transfers = f"{counted(result.rounds, 'round')}, {result.transfers:,} transfers"
    print_text(f"time        {format_time(result.time_s)}  ({transfers})")
    print_text(f"algbw       {format_bandwidth(result.algbw)}  (size / time)")
    print_text(f"busbw       {format_bandwidth(result.busbw)}  (algbw x {FACTORS[result.collective]})")
    print_text(f"bottleneck  {result.bottleneck}")
    if result.note:
        print_text(f"note        {result.note}")
    busiest = result.busiest(5)
    if busiest:
        print_text("")
        rows = [[load.name, f"{load.utilisation:.1%}", format_size(round(load.bytes))] for load in busiest]
        print_table(["busiest links", "of the time", "bytes"], rows)
    path = result.critical_path()
    if path:
        print_text("\nwhat the time is the sum of")
        for sentence in path[:12]:
            print_text(f"  {sentence}")
        if len(path) > 12:
            print_text(f"  and {len(path) - 12} more pieces; --json has them all")
