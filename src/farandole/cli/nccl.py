"""``farandole nccl``: what NCCL would choose on a cluster by its own published model, beside our best schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from farandole.cli import _options as options
from farandole.cli._clusters import Slow, Spec, cluster_of
from farandole.cli._output import print_json, print_table, print_text
from farandole.errors import UsageError
from farandole.units import counted, format_bandwidth, format_size, format_time, parse_sizes

if TYPE_CHECKING:
    from farandole.gpu.beside import Beside
    from farandole.gpu.graph import Graph, Machine

EXAMPLES = (
    "farandole nccl --cluster dgx-h100:4",
    "farandole nccl --cluster dgx-a100:2 --collective all_gather --sizes 1KiB:1GiB*32",
    "farandole nccl --cluster hosts:4x8@300GB/s@100GB/s --gpu ampere --sizes 1MiB,64MiB --json",
)

GPUS = {"dgx-a100": "ampere", "dgx-h100": "hopper"}


def nccl(
    cluster: Spec,
    sizes: Annotated[str, typer.Option("--sizes", help="1KiB:1GiB, 1KiB:1GiB*4, or 1KiB,1MiB.")] = "1KiB:1GiB*32",
    collective: options.Collective = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            help="The generation of GPUs: volta, ampere, hopper or blackwell; dgx-a100 and dgx-h100 have theirs.",
            show_default=False,
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option("--link", help="Between GPUs: nvlink or pcie.  [default: by bandwidth]", show_default=False),
    ] = None,
    processor: Annotated[
        str | None,
        typer.Option(
            "--processor",
            help="Of the hosts: intel or amd.  [default: amd with ampere, else intel]",
            show_default=False,
        ),
    ] = None,
    slow: Slow = None,
    json: options.Json = False,
) -> None:
    """Show which algorithm, protocol and channels NCCL would choose for each size, and how long it takes that to be.

    It is NCCL's own model, with the constants of its source (v2.30.7): a prediction, not a measurement, without SHARP,
    tuner plugins and environment variables. Beside it stands the fastest of our schedules, simulated on the links of
    the cluster, and how much longer NCCL's rings or trees take in the same simulation.
    """
    size_list = parse_sizes(sizes)
    described = cluster_of(cluster, slow)
    generation = gpu or next((GPUS[name] for name in GPUS if cluster.startswith(f"{name}:")), "")
    if not generation:
        raise UsageError(f"{cluster} does not say which GPUs it has: add --gpu hopper, or ampere, volta, blackwell")
    from farandole.gpu.beside import beside  # noqa: PLC0415 - loads NumPy
    from farandole.gpu.graph import graphs, machine_of  # noqa: PLC0415

    what = collective or "all_reduce"
    machine = machine_of(described, generation, link or "", processor or "")
    rows = beside(machine, described, what, size_list)
    if json:
        print_json("nccl", _as_dict(what, described.name, machine, graphs(machine), rows))
    else:
        _print(what, described.name, machine, graphs(machine), rows)


def _as_dict(
    collective: str, cluster: str, machine: Machine, shape: dict[str, Graph], rows: list[Beside]
) -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415 - beside its use

    from farandole.bandwidth import algbw, bus_factor  # noqa: PLC0415

    factor = bus_factor(collective, machine.ranks)
    return {
        "kind": "computed",
        "collective": collective,
        "cluster": cluster,
        "ranks": machine.ranks,
        "machine": asdict(machine),
        "channels": {name: asdict(graph) for name, graph in shape.items()},
        "results": [
            {
                **asdict(row.nccl),
                "algbw": algbw(row.nccl.size_bytes, row.nccl.time_s),
                "busbw": algbw(row.nccl.size_bytes, row.nccl.time_s) * factor,
                "simulated": {
                    "best": row.best,
                    "best_s": row.best_s,
                    "as_schedule": row.as_schedule,
                    "as_schedule_s": row.as_schedule_s,
                    "ratio": row.ratio,
                },
            }
            for row in rows
        ],
    }


def _print(collective: str, cluster: str, machine: Machine, shape: dict[str, Graph], rows: list[Beside]) -> None:
    from farandole.bandwidth import FACTORS, algbw, bus_factor  # noqa: PLC0415 - loads NumPy

    print_text(f"{collective} on {counted(machine.ranks, 'rank')} of {cluster}: NCCL by its own model, computed")
    between = f", {counted(machine.nics, 'NIC')} of {machine.nic_bw:g} GB/s a host" if machine.hosts > 1 else ""
    print_text(f"as NCCL rates it: {machine.generation}, {machine.gpu_bw:.4g} GB/s of {machine.link} a GPU{between}")
    for name, graph in shape.items():
        outside = f", {graph.bw_between:g} between hosts" if machine.hosts > 1 else ""
        print_text(f"{name:5} {counted(graph.channels, 'channel')} of {graph.bw_inside:g} GB/s{outside}")
    factor = bus_factor(collective, machine.ranks)
    print_text("")
    print_table(
        ["size", "NCCL chooses", "channels", "its time", "its busbw", "best simulated", "time", "NCCL's, simulated"],
        [
            [
                format_size(row.nccl.size_bytes),
                f"{row.nccl.algorithm} {row.nccl.protocol}",
                row.nccl.channels,
                format_time(row.nccl.time_s),
                format_bandwidth(algbw(row.nccl.size_bytes, row.nccl.time_s) * factor),
                row.best,
                format_time(row.best_s),
                _difference(row),
            ]
            for row in rows
        ],
    )
    print_text(f"its time, its busbw: by NCCL's model; busbw = size / time x {FACTORS[collective]}")
    print_text(
        "simulated: on the cluster's links, with the cluster's costs but no runtime's; the last column is NCCL's"
    )
    print_text("choice as a schedule with its channels, and how many times the best it takes (-: none, or too long)")


def _difference(row: Beside) -> str:
    if row.ratio is None or row.as_schedule_s is None:
        return "-"
    return "the best" if row.as_schedule == row.best else f"{format_time(row.as_schedule_s)}, x{row.ratio:.2f}"
