"""What the lab answers, as plain values for JSON; pure functions of a question."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from farandole.algorithms import REGISTRY, build
from farandole.bandwidth import FACTORS
from farandole.cluster import PRESETS
from farandole.collectives import COLLECTIVES
from farandole.collectives import collective as find
from farandole.cost import price
from farandole.errors import UsageError
from farandole.lab.advice import advice
from farandole.lab.question import DEFAULTS, LARGEST_BYTES, MOST_RANKS, Question
from farandole.show.page import payload
from farandole.simulate import Comparison, Simulation, predict, simulate
from farandole.simulate.compare import candidates, to_svg
from farandole.units import format_bandwidth, format_size, format_time

COMPARE_LIMIT_S = 10.0
SIZE_STEPS = (-4, -2, 0, 2, 4)  # of the size that was asked for: in powers of 4
SHOWN_PATH = 12


def choices() -> dict[str, Any]:
    """What there is to choose from, and where it starts."""
    return {
        "defaults": dict(DEFAULTS),
        "most_ranks": MOST_RANKS,
        "collectives": [
            {
                "name": name,
                "rooted": find(name).rooted,
                "moves_data": find(name).moves_data,
                "algorithms": [
                    {
                        "name": entry.name,
                        "options": list(entry.options),
                        "rounds": entry.rounds,
                        "summary": entry.summary,
                    }
                    for entry in REGISTRY.values()
                    if entry.collective == name
                ],
            }
            for name in COLLECTIVES
        ],
        "clusters": [preset.form for preset in PRESETS.values()],
    }


def shown(asked: Question) -> dict[str, Any]:
    """The player's data for one algorithm on the cluster, and the numbers; what is not simulated says so."""
    schedule = build(asked.collective, asked.algorithm, asked.ranks, asked.root)
    simulation = simulate(schedule, asked.cluster, asked.size_bytes, itemsize=asked.itemsize, trace=True)
    priced = price(schedule, asked.size_bytes, itemsize=asked.itemsize)
    path = simulation.critical_path()
    return {
        "kind": "simulated",
        "title": f"{schedule.name}: {asked.collective} of {format_size(asked.size_bytes)}",
        "where": f"{asked.ranks} ranks of {asked.cluster.name}",
        "player": payload(schedule, trace=simulation),
        "numbers": [
            ["time", format_time(simulation.time_s), "simulated"],
            ["algbw", format_bandwidth(simulation.algbw), "size / time"],
            ["busbw", format_bandwidth(simulation.busbw), f"algbw × {FACTORS[asked.collective]}"],
            ["rounds", str(simulation.rounds), f"{simulation.transfers:,} transfers"],
            ["sent per rank", format_size(int(priced.bytes_sent.max())), "by the busiest one, computed"],
            ["bottleneck", simulation.bottleneck, "the busiest link, or what else the time goes into"],
        ],
        "time_s": simulation.time_s,
        "links": [
            [load.name, f"{load.utilisation:.1%}", format_size(round(load.bytes))] for load in simulation.busiest(8)
        ],
        "path": [
            *path[:SHOWN_PATH],
            *([f"and {len(path) - SHOWN_PATH} more pieces"] if len(path) > SHOWN_PATH else []),
        ],
        "note": simulation.note,
    }


def compared(
    asked: Question, limit_s: float = COMPARE_LIMIT_S, clock: Callable[[], float] = time.monotonic
) -> dict[str, Any]:
    """All algorithms over sizes around the one asked for: the plot, a table, and what to take.

    The algorithm that was asked for comes first; those that have not come by when ``limit_s`` is over are left out.
    """
    if not find(asked.collective).moves_data:
        sizes: tuple[int, ...] = (asked.size_bytes,)
    else:
        sizes = tuple(sorted({_around(asked.size_bytes, step) for step in SIZE_STEPS}))
    used = asked.cluster.first(asked.ranks)
    others = [name for name in candidates(asked.collective, used) if name != asked.algorithm]
    end = clock() + limit_s
    results: dict[str, tuple[Simulation, ...]] = {}
    left_out: dict[str, str] = {}
    for name in (asked.algorithm, *others):
        if results and clock() > end:
            left_out[name] = "no time was left"
            continue
        try:
            results[name] = tuple(
                predict(asked.collective, name, used, size, root=asked.root, itemsize=1 if size % 4 else 4)
                for size in sizes
            )
        except UsageError as error:  # not for so many ranks
            if name == asked.algorithm:
                raise
            left_out[name] = str(error)
    comparison = Comparison(asked.collective, used, sizes, results)
    return {
        "kind": "simulated",
        "plot": to_svg(comparison) if len(sizes) > 1 else "",
        "sizes": [format_size(size) for size in sizes],
        "rows": [[name, *(format_time(one.time_s) for one in each)] for name, each in results.items()],
        "best": comparison.best(),
        "advice": advice(comparison, asked.algorithm, asked.size_bytes),
        "left_out": [f"{name} is left out: {reason}" for name, reason in left_out.items()],
    }


def _around(size_bytes: int, step: int) -> int:
    if step == 0:
        return size_bytes
    factor: int = 4 ** abs(step)
    return min(max(size_bytes * factor if step > 0 else size_bytes // factor, 4), LARGEST_BYTES)
