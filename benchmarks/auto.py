"""What calls that ask for no algorithm take, beside every algorithm that could be asked for, as a Markdown table.

    farandole launch -n 4 benchmarks/auto.py [--sizes 64,4KiB,256KiB] [--turns 9]

Algorithms take turns: the ranks meet in a barrier, and each makes a batch of calls, one right after the other. A time
is the mean over the batch and over the ranks, and of that the median over the turns. With no profile of `farandole
tune` it is the built-in rule that is judged.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import farandole
from farandole.algorithms import REGISTRY
from farandole.units import format_size, format_time, parse_sizes

BATCH_S = 0.008
Call = Callable[[str], object]


def calls_of(comm: farandole.Communicator, size_bytes: int) -> dict[str, Call]:
    """Each collective on a largest buffer of so many bytes, by the name of an algorithm."""
    whole, part = np.ones(size_bytes // 4, np.float32), np.ones(size_bytes // 4 // comm.size, np.float32)
    result, gathered, share = np.empty_like(whole), np.empty(part.size * comm.size, np.float32), np.empty_like(part)
    spread = whole[: part.size * comm.size]
    return {
        "all_reduce": lambda name: comm.all_reduce(whole, out=result, algorithm=name),
        "reduce_scatter": lambda name: comm.reduce_scatter(spread, out=share, algorithm=name),
        "all_gather": lambda name: comm.all_gather(part, out=gathered, algorithm=name),
    }


def contest(comm: farandole.Communicator, call: Call, algorithms: list[str], turns: int) -> dict[str, float]:
    """The median time of each algorithm, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in algorithms}
    repetitions = dict.fromkeys(algorithms, 5)
    for turn in range(turns + 1):
        for name in algorithms:
            call(name)
            comm.barrier()
            begin = time.perf_counter()
            for _ in range(repetitions[name]):
                call(name)
            mine_s = (time.perf_counter() - begin) / repetitions[name]
            mean_s = float(comm.all_reduce(np.array([mine_s]), "avg", algorithm="direct")[0])
            if turn == 0:
                repetitions[name] = max(5, min(2000, int(BATCH_S / mean_s)))
            else:
                times[name].append(mean_s)
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    """In every rank; rank 0 prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="64,4KiB,32KiB,256KiB,2MiB", help="of the largest buffer of a rank")
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    with farandole.init() as comm:
        if comm.rank == 0:
            print(f"| on {comm.size} ranks | size | auto | takes | best other | takes | ratio |")
            print("| --- | --- | --- | --- | --- | --- | --- |")
        for size in parse_sizes(options.sizes):
            for collective, call in calls_of(comm, size).items():
                names = [name for of, name in REGISTRY if of == collective]
                times = contest(comm, call, ["auto", *names], options.turns)
                picked = comm.explain(collective, size).algorithm
                auto_s = times.pop("auto")
                took_s = (auto_s + times.pop(picked, auto_s)) / 2  # the same call, twice
                other = min(times, key=times.__getitem__)
                if comm.rank == 0:
                    cells = (
                        picked,
                        format_time(took_s),
                        other,
                        format_time(times[other]),
                        f"{took_s / times[other]:.2f}",
                    )
                    print(f"| {collective} | {format_size(size)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
