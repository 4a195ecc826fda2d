"""``farandole cluster``: what a cluster consists of, as text, JSON or a drawing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from farandole.cli import _options as options
from farandole.cli._clusters import Slow, check_svg, cluster_of
from farandole.cli._output import print_json, print_note, print_text
from farandole.errors import UsageError

EXAMPLES = (
    "farandole cluster dgx-h100:2",
    "farandole cluster ring:8@50GB/s --slow 3-4:0.25",
    "farandole cluster my_cluster.toml -o my_cluster.svg",
    "farandole cluster detect --json",
    "farandole cluster --schema",
)

SPEC_HELP = (
    "ring:8@50GB/s, switch:64@100Gbit/s,2us, full:8, hosts:4x8@300GB/s@25GB/s, torus:4x4x4, fat-tree:8, "
    "ethernet:4@25Gbit/s, pcie:8, dgx-a100:N, dgx-h100:N; a file.toml; or detect, for this machine."
)


def cluster(
    spec: Annotated[str | None, typer.Argument(metavar="SPEC", help=SPEC_HELP, show_default=False)] = None,
    slow: Slow = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a drawing to this .svg file.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of cluster files instead.")] = False,
    json: options.Json = False,
) -> None:
    """Describe a cluster: hosts, ranks, links with their bandwidths and latencies.

    Bandwidths are per direction. The cluster of `detect` is this machine's: a rank per core, all copying through
    memory at the bandwidth that a copy reaches now.
    """
    from farandole.cluster import file  # noqa: PLC0415 - loads NumPy

    if schema:
        print_json("cluster", {"schema": file.schema()})
        return
    from farandole.cluster.draw import to_svg, to_text  # noqa: PLC0415

    check_svg(output)
    if spec is None:
        raise UsageError("a cluster is needed, such as dgx-h100:2 or my_cluster.toml; detect is this machine")
    described = cluster_of(spec, slow)
    if output is not None:
        output.write_text(to_svg(described), encoding="utf-8")
        print_note(f"drawn to {output}")
    if json:
        links = [
            {"src": link.src, "dst": link.dst, "bandwidth": link.bandwidth, "latency_s": link.latency_s,
             "shared": link.shared}
            for link in described.links()
        ]  # fmt: skip
        print_json(
            "cluster",
            {
                "kind": "measured" if spec == "detect" else "computed",
                "name": described.name,
                "hosts": described.hosts,
                "ranks": described.ranks,
                "startup_s": described.startup_s,
                "reduce_s_per_byte": described.reduce_s_per_byte,
                "links": links,
            },
        )
    else:
        print_text(to_text(described))
