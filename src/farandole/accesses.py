"""Which cells the steps of a program read and write, and which steps therefore must not run at once.

Two steps of one rank *conflict* when they are in different lanes and touch a cell that at least one of them
writes. What happens to a cell depends on which of the two comes first, so something must order them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.program import READS, WRITES, Program
from farandole.schedule import Ints

Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Accesses:
    """One row per cell that a step touches: the step's index, the cell over all ranks, whether it writes."""

    step: Ints
    cell: Longs
    writes: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of conflicting steps, ``earlier`` before ``later`` in some order, and a cell they both touch."""

    earlier: Ints
    later: Ints
    cell: Longs

    def __len__(self) -> int:
        return len(self.earlier)

    def select(self, rows: NDArray[Any]) -> Pairs:
        """Some of the pairs: those of a mask, or those at some places."""
        return Pairs(self.earlier[rows], self.later[rows], self.cell[rows])


def runs(starts: NDArray[Any], counts: NDArray[Any]) -> tuple[NDArray[np.intp], Longs]:
    """Spread runs out: for each element of each run, the number of its run and ``start + place in the run``.

    >>> runs(np.array([5, 0]), np.array([2, 1]))
    (array([0, 0, 1]), array([5, 6, 0]))
    """
    counts = np.asarray(counts, np.int64)
    row = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    return row, np.arange(len(row)) - np.repeat(before - starts, counts)


def is_in_memory(program: Program) -> NDArray[np.bool_]:
    """Which steps touch existing cells only, and at least one where they touch any."""
    steps, cells = program.steps, program.cells
    good = (steps.count > 0) | ~(READS | WRITES)[steps.op]
    for used, first in ((READS[steps.op], steps.read), (WRITES[steps.op], steps.write)):
        good &= ~used | ((first >= 0) & (first.astype(np.int64) + steps.count <= cells))
    return good


def accesses(program: Program) -> Accesses:
    """All reads and writes of the steps that touch existing cells, and of no others."""
    steps, good = program.steps, is_in_memory(program)
    base = program.step_rank.astype(np.int64) * program.cells
    parts: list[tuple[NDArray[Any], Longs, bool]] = []
    for used, first, writes in ((READS[steps.op], steps.read, False), (WRITES[steps.op], steps.write, True)):
        index = np.flatnonzero(used & good)
        row, cell = runs(base[index] + first[index], steps.count[index])
        parts.append((index[row], cell, writes))
    return Accesses(
        np.concatenate([index for index, _, _ in parts]).astype(np.int32),
        np.concatenate([cell for _, cell, _ in parts]),
        np.concatenate([np.full(len(index), writes) for index, _, writes in parts]),
    )


def conflicts(program: Program, time: NDArray[Any]) -> Pairs:
    """The conflicting pairs that matter when steps run in the order of ``time`` (one number per step).

    Lanes are strictly ordered. So for each access and each other lane only the latest conflicting step
    before it counts: whatever orders the two also orders all that come before in that lane. Steps with a
    negative time do not take part.
    """
    table = accesses(program)
    taking_part = time[table.step] >= 0
    step, cell, writes = table.step[taking_part], table.cell[taking_part], table.writes[taking_part]
    local_lane = program.step_lane - program.first_lane[program.step_rank]
    lane = local_lane[step]
    shared = _is_shared(cell, lane, writes)
    order = np.lexsort((time[step[shared]], cell[shared]))
    chosen = np.flatnonzero(shared)[order]
    step, cell, lane, writes = step[chosen], cell[chosen], lane[chosen], writes[chosen]

    place = np.arange(len(step))
    group = np.searchsorted(cell, cell)
    earlier: list[NDArray[Any]] = []
    later: list[NDArray[Any]] = []
    for other in np.unique(lane):
        for matters, against in (((lane == other) & writes, lane != other), (lane == other, (lane != other) & writes)):
            latest = np.maximum.accumulate(np.where(matters, place, -1))
            rows = np.flatnonzero(against & (latest >= group))
            earlier.append(latest[rows])
            later.append(rows)
    first, second = (np.concatenate(rows) if rows else np.empty(0, np.intp) for rows in (earlier, later))
    _, once = np.unique(step[first].astype(np.int64) * max(len(program.steps), 1) + step[second], return_index=True)
    return Pairs(step[first[once]], step[second[once]], cell[first[once]])


def _is_shared(cell: Longs, lane: Ints, writes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which accesses are to a cell that several lanes touch and one of them writes."""
    if not len(cell):
        return np.empty(0, np.bool_)
    top = int(cell.max()) + 1
    lowest, highest = np.full(top, np.iinfo(np.int32).max, np.int32), np.full(top, -1, np.int32)
    np.minimum.at(lowest, cell, lane)
    np.maximum.at(highest, cell, lane)
    written = np.zeros(top, np.bool_)
    written[cell[writes]] = True
    return np.asarray((lowest != highest)[cell] & written[cell])
