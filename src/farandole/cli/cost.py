"""``farandole cost``: rounds, bytes and time of an algorithm by the alpha-beta-gamma model."""

from __future__ import annotations

from typing import Annotated

import typer

from farandole.cli import _options as options
from farandole.cli._output import print_json, print_table, print_text
from farandole.cli._schedules import schedule_of
from farandole.units import (
    counted,
    format_bandwidth,
    format_size,
    format_time,
    parse_size,
    parse_time,
    parse_time_per_byte,
)

EXAMPLES = (
    "farandole cost ring --ranks 8 --size 64MiB",
    "farandole cost tree --ranks 64 --size 8KiB --alpha 2us --beta 100Gbit/s",
    "farandole cost direct --ranks 64 --size 1MiB --overhead 500ns",
)


def cost(
    algorithm: options.Algorithm,
    size: Annotated[str, typer.Option("--size", "-s", help="The whole buffer: 8, 64KiB, 1MiB or 1GB.")] = "64MiB",
    ranks: options.Ranks = None,
    collective: options.Collective = None,
    root: options.Root = None,
    dtype: options.Dtype = "float32",
    alpha: Annotated[str, typer.Option("--alpha", help="The start-up time of a round.")] = "5us",
    beta: Annotated[str, typer.Option("--beta", help="Time per byte sent, or the bandwidth of a rank.")] = "25GB/s",
    gamma: Annotated[str, typer.Option("--gamma", help="Time per byte reduced, or the bandwidth of that.")] = "0",
    overhead: Annotated[str, typer.Option("--overhead", help="Time per message at the busiest rank.")] = "0s",
    json: options.Json = False,
) -> None:
    """Count rounds and bytes, and add up the time that an idle, even network would take.

    A round takes alpha, plus beta for each byte at the busiest rank, plus gamma for each byte that is reduced.
    """
    rates = {
        "alpha_s": parse_time(alpha),
        "beta_s_per_byte": parse_time_per_byte(beta),
        "gamma_s_per_byte": parse_time_per_byte(gamma),
        "overhead_s": parse_time(overhead),
    }
    size_bytes = parse_size(size)
    from farandole.bandwidth import FACTORS, algbw, bus_factor  # noqa: PLC0415 - loads NumPy
    from farandole.cost import Rates, price  # noqa: PLC0415
    from farandole.ops import find_dtype  # noqa: PLC0415

    itemsize = find_dtype(dtype).itemsize
    schedule = schedule_of(algorithm, ranks, collective, root)
    priced = price(schedule, size_bytes, itemsize=itemsize, rates=Rates(**rates))
    speed = algbw(size_bytes, priced.time_s)
    bus_speed = speed * bus_factor(schedule.collective, schedule.ranks)
    per_rank = {
        "bytes_sent_per_rank": priced.bytes_sent,
        "bytes_received_per_rank": priced.bytes_received,
        "bytes_reduced_per_rank": priced.bytes_reduced,
        "messages_sent_per_rank": priced.messages_sent,
    }
    sums = {name: {"max": int(each.max()), "total": int(each.sum())} for name, each in per_rank.items()}
    if json:
        about = {
            "algorithm": schedule.name or algorithm, "collective": schedule.collective, "ranks": schedule.ranks,
            "size_bytes": size_bytes, "dtype": dtype,
        }  # fmt: skip
        times = {"time_s": priced.time_s, "algbw": speed, "busbw": bus_speed}
        print_json("cost", {"kind": "computed", **about, "rounds": priced.rounds, **sums, **times, **rates})
        return
    name, what, where = schedule.name or algorithm, schedule.collective, counted(schedule.ranks, "rank")
    print_text(f"{name}: {what} of {format_size(size_bytes)} {dtype} on {where}, computed")
    print_table(
        ["", "busiest rank", "all ranks"],
        [
            [name.removesuffix("_per_rank").replace("_", " "), *(f"{value:,}" for value in both.values())]
            for name, both in sums.items()
        ],
    )
    print_text(f"rounds  {priced.rounds}")
    model = f"alpha {alpha}, beta {beta}, gamma {gamma}, overhead {overhead}"
    print_text(f"time    {format_time(priced.time_s)}  ({model})")
    print_text(f"algbw   {format_bandwidth(speed)}  (size / time)")
    print_text(f"busbw   {format_bandwidth(bus_speed)}  (algbw x {FACTORS[schedule.collective]})")
