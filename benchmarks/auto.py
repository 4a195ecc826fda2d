"""What calls that ask for no algorithm take, beside every algorithm that could be asked for, as a Markdown table.

    farandole launch -n 4 benchmarks/auto.py [--sizes 64,4KiB,256KiB] [--collectives all_reduce] [--turns 9]

Algorithms take turns: the ranks meet in a barrier, and each makes a batch of calls, one right after the other. A time
is the mean over the batch and over the ranks, and of that the median over the turns. The ratio to the best other is the
median over the turns of the ratio in each turn. With no profile of `farandole tune` it is the built-in rule that is
judged.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import farandole
from farandole.bench.calls import CALLS, Trial, buffers
from farandole.bench.candidates import candidates
from farandole.run.machine import this_machine
from farandole.units import format_size, format_time, parse_sizes

BATCH_S = 0.008
Times = dict[str, list[float]]


def calls_of(
    comm: farandole.Communicator, collective: str, size_bytes: int, algorithms: list[str]
) -> dict[str, Callable[[], object]]:
    """A call of each algorithm on a largest buffer of so many bytes."""
    trial = Trial(collective, "", size_bytes)
    made = buffers(comm, trial, size_bytes // 4)
    return {name: CALLS[collective](comm, trial, name, made)[0] for name in algorithms}


def contest(comm: farandole.Communicator, calls: dict[str, Callable[[], object]], turns: int) -> Times:
    """The times of each algorithm by turn, in seconds."""
    times: Times = {name: [] for name in calls}
    repetitions = dict.fromkeys(calls, 5)
    for turn in range(turns + 1):
        for name, call in calls.items():
            call()
            comm.barrier()
            begin = time.perf_counter()
            for _ in range(repetitions[name]):
                call()
            mine_s = (time.perf_counter() - begin) / repetitions[name]
            mean_s = float(comm.all_reduce(np.array([mine_s]), "avg", algorithm="direct")[0])
            if turn == 0:
                repetitions[name] = max(5, min(2000, int(BATCH_S / mean_s)))
            else:
                times[name].append(mean_s)
    return times


def ratio(mine: list[float], others: list[float]) -> float:
    """The median over the turns of how many times longer the first takes."""
    return statistics.median(a / b for a, b in zip(mine, others, strict=True))


def main() -> None:
    """In every rank; rank 0 prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="64,4KiB,32KiB,256KiB,2MiB", help="of the largest buffer of a rank")
    parser.add_argument("--collectives", default="all_reduce,reduce_scatter,all_gather")
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    with farandole.init() as comm:
        cores = int(comm.broadcast(np.array([this_machine().cores]))[0])  # the ranks may be bound, each to its own
        contest(comm, {"": comm.barrier}, 40)  # the system needs a while to spread new processes over the cores
        if comm.rank == 0:
            print(f"| on {comm.size} ranks | size | auto | takes | best other | takes | ratio |")
            print("| --- | --- | --- | --- | --- | --- | --- |")
        for size in parse_sizes(options.sizes):
            for collective in options.collectives.split(","):
                picked = comm.explain(collective, size).algorithm
                names = list(dict.fromkeys(["auto", picked, *candidates(collective, comm.size, [size], cores)]))
                times = contest(comm, calls_of(comm, collective, size, names), options.turns)
                # The same call, twice.
                mine = [(a + b) / 2 for a, b in zip(times.pop("auto"), times.pop(picked), strict=True)]
                if comm.rank != 0 or not times:
                    continue
                cells = [collective, format_size(size), picked, format_time(statistics.median(mine))]
                ratios = {name: ratio(mine, theirs) for name, theirs in times.items()}
                best = max(ratios, key=ratios.__getitem__)
                cells += [best, format_time(statistics.median(times[best])), f"{ratios[best]:.2f}"]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
