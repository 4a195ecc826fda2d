"""NCCL's choice beside the best of our schedules, size by size.

Two models of different things, so they are kept apart: NCCL's is that of its own kernels and protocols; the
simulation is that of schedules on the cluster's links, with no runtime's costs but those that the cluster has. What
can be compared is the choice: NCCL's rings and trees are simulated too, as schedules with all their channels, and the
difference to the best one is what the simulation says another algorithm would win, were protocols free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from farandole.cluster.model import Cluster
from farandole.gpu import channels
from farandole.gpu.graph import Machine
from farandole.gpu.tuning import Choice, choose
from farandole.schedule import Schedule
from farandole.simulate import Settings, compare, simulate

SLICES = (1, 8)
SMALLEST_SLICE = 65536
LARGEST_SCHEDULE = 2_000_000  # transfers: longer rings are not simulated
LARGEST_SLICED = 40_000  # transfers times slices: trees are simulated with fewer slices, or not at all, beyond that


@dataclass(frozen=True, slots=True)
class Beside:
    """For one size: NCCL's choice, the best schedule, and the one that NCCL's choice is; times in seconds.

    ``as_schedule`` is empty where no schedule stands for NCCL's algorithm (NVLS reduces inside the switch), or where
    it has too many transfers to be simulated.
    """

    nccl: Choice
    best: str
    best_s: float
    as_schedule: str
    as_schedule_s: float | None

    @property
    def ratio(self) -> float | None:
        """How many times longer NCCL's choice takes than the best, both simulated: 1.0 where they are the same."""
        return None if self.as_schedule_s is None else self.as_schedule_s / self.best_s


def beside(machine: Machine, cluster: Cluster, collective: str, sizes: Sequence[int]) -> list[Beside]:
    """Both choices for each size in bytes.

    Raises UnsupportedError for a collective that NCCL's model does not know.
    """
    chosen = choose(machine, collective, sizes)
    compared = compare(collective, cluster, sizes)
    found = []
    for place, choice in enumerate(chosen):
        times = {name: results[place].time_s for name, results in compared.results.items()}
        own = {}
        for algorithm, schedule in _schedules(machine, collective, choice.channels):
            own[algorithm] = f"NCCL's {schedule.name}"
            times[own[algorithm]] = _time(schedule, cluster, choice.size_bytes, algorithm)
        best = min(times, key=times.__getitem__)
        name = own.get(choice.algorithm, "")
        is_known = name != "" and math.isfinite(times[name])
        found.append(Beside(choice, best, times[best], name if is_known else "", times[name] if is_known else None))
    return found


def _schedules(machine: Machine, collective: str, most: int) -> list[tuple[str, Schedule]]:
    """NCCL's algorithms that are schedules, where they are not too long to list."""
    n, count = machine.ranks, channels.channels_of(machine, most)
    makers: list[tuple[str, int, Callable[[], Schedule]]] = []
    if collective in channels.RINGS:
        steps = 2 * (n - 1) if collective == "all_reduce" else n - 1
        makers.append(("ring", steps * n * count, lambda: channels.rings(machine, collective, most)))
    if collective == "all_reduce":
        makers.append(("tree", 4 * n * count, lambda: channels.trees(machine, most)))
    return [(name, make()) for name, transfers, make in makers if transfers <= LARGEST_SCHEDULE]


def _time(schedule: Schedule, cluster: Cluster, size: int, algorithm: str) -> float:
    """Simulated; a tree with as many slices as are good for it, infinite where it has too many transfers for that."""
    slices = [1]
    if algorithm == "tree" and size >= SLICES[1] * SMALLEST_SLICE:
        slices = [count for count in SLICES if count * schedule.transfers <= LARGEST_SLICED]
        if len(slices) < 2:
            return math.inf
    itemsize = 1 if size % 4 else 4
    return min(
        simulate(schedule, cluster, size, settings=Settings(slices=count), itemsize=itemsize).time_s for count in slices
    )
