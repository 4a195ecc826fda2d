"""What still and moving pictures have in common: colours, cells, places of ranks, and what is held when.

A picture has a row per rank and a column per chunk, as the player has; in a cell there is one slot per rank, filled
where that rank's contribution is in the chunk. All is arithmetic on the schedule, so the same schedule gives the same
picture, byte for byte.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from farandole.captions import arrivals
from farandole.collectives import collective
from farandole.errors import UsageError
from farandole.schedule import Round, Schedule
from farandole.units import counted
from farandole.verify import states

INK, SOFT, FAINT, CELL, SLOT = "#1d2330", "#596172", "#c3c8d2", "#f3f4f7", "#e3e6ec"
CHUNKS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a600", "#5b4bb5")

Point = tuple[float, float]


def chunk_colour(chunk: int) -> str:
    """The colour of a chunk, after Okabe and Ito; colours come round again, so a chunk also has its number."""
    return CHUNKS[chunk % len(CHUNKS)]


def text_on(colour: str) -> str:
    """Black or white, whichever reads better on ``colour``."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return "#10131a" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#ffffff"


@dataclass(frozen=True, slots=True)
class Stage:
    """What is held after some rounds: ``holds`` has shape (ranks, chunks, ranks), ``fresh`` (ranks, chunks)."""

    holds: NDArray[np.bool_]
    fresh: NDArray[np.bool_]


def stages(schedule: Schedule) -> list[Stage]:
    """The start, and what is held after each round."""
    rank = np.arange(schedule.ranks)
    word, bit = rank // 64, (rank % 64).astype(np.uint64)
    rounds: list[Round | None] = [None, *schedule.rounds]
    found = []
    for round_, held in zip(rounds, states(schedule), strict=True):
        fresh = np.zeros(held.shape[:2], np.bool_)
        if round_ is not None:
            fresh[arrivals(schedule, round_)] = True
        found.append(Stage((held[:, :, word] >> bit & np.uint64(1)).astype(np.bool_), fresh))
    return found


def whole(schedule: Schedule) -> int:
    """How many contributions make a chunk complete."""
    return schedule.ranks if collective(schedule.collective).reduces else 1


def phases(schedule: Schedule) -> list[tuple[str, int, int]]:
    """Consecutive rounds of one phase: its name, its first round, and the one after its last."""
    found, begin = [], 0
    for phase, group in groupby(round_.phase for round_ in schedule.rounds):
        end = begin + len(list(group))
        found.append((phase, begin, end))
        begin = end
    return found


def check_size(schedule: Schedule, parts: int, most: int, what: str) -> None:
    """Raise UsageError where a picture would have more than ``most`` parts."""
    if parts > most:
        raise UsageError(
            f"{schedule.name or 'this schedule'} has {counted(schedule.ranks, 'rank')},"
            f" {counted(schedule.chunks, 'chunk')} and {counted(len(schedule.rounds), 'round')}: too much for {what}"
            f" ({parts:,} parts, at most {most:,}); show fewer ranks, or write a .html, which holds more",
            expected=most,
            got=parts,
        )


def transfers(schedule: Schedule, round_: Round) -> list[tuple[int, int, int, int, bool]]:
    """The transfers of a round between ranks and of chunks that exist: src, dst, first chunk, count, reduce."""
    columns = (round_.src, round_.dst, round_.chunk, round_.count, round_.reduce)
    return [
        (src, dst, chunk, count, reduce)
        for src, dst, chunk, count, reduce in zip(*(column.tolist() for column in columns), strict=True)
        if min(src, dst, chunk) >= 0 and max(src, dst) < schedule.ranks and 0 < count <= schedule.chunks - chunk
    ]


def label(chunk: int, count: int) -> str:
    """The chunks of a transfer: ``3``, or ``4-7``."""
    return str(chunk) if count == 1 else f"{chunk}-{chunk + count - 1}"


def places(schedule: Schedule) -> list[Point]:
    """Where the ranks stand, in a square from -1 to 1: in a tree if the transfers form one, else in a circle."""
    parents = tree_parents(schedule)
    if parents:
        return _tree(parents)
    n = schedule.ranks
    turn = math.pi if n == 2 else -math.pi / 2
    return [(math.cos(turn + 2 * math.pi * r / n), math.sin(turn + 2 * math.pi * r / n)) for r in range(n)]


def pairs(schedule: Schedule) -> list[tuple[int, int]]:
    """The pairs of ranks that exchange anything, each once."""
    found = {
        (min(src, dst), max(src, dst))
        for round_ in schedule.rounds
        for src, dst, *_ in transfers(schedule, round_)
        if src != dst
    }
    return sorted(found)


def tree_parents(schedule: Schedule) -> list[int]:
    """Each rank's parent (-1 for the root) where the transfers form a tree that is no mere chain, else nothing."""
    n, edges = schedule.ranks, pairs(schedule)
    near: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    if len(edges) != n - 1 or max(map(len, near)) < 3:
        return []
    root = max(range(n), key=lambda rank: (len(near[rank]), -rank))
    parents, queue = {root: -1}, [root]
    for rank in queue:
        for other in sorted(near[rank]):
            if other not in parents:
                parents[other] = rank
                queue.append(other)
    return [parents[rank] for rank in range(n)] if len(parents) == n else []


def _tree(parents: list[int]) -> list[Point]:
    children: dict[int, list[int]] = {}
    for rank, parent in enumerate(parents):
        children.setdefault(parent, []).append(rank)
    across: dict[int, float] = {}
    down: dict[int, int] = {}
    leaves = 0

    def place(rank: int, depth: int) -> float:
        nonlocal leaves
        down[rank] = depth
        below = [place(child, depth + 1) for child in children.get(rank, ())]
        across[rank] = (below[0] + below[-1]) / 2 if below else float(leaves)
        leaves += not below
        return across[rank]

    place(children[-1][0], 0)
    deepest = max(down.values())
    return [(2 * across[r] / max(leaves - 1, 1) - 1, 2 * down[r] / deepest - 1) for r in range(len(parents))]
