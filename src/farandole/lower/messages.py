"""The messages of a schedule: its transfers, cut where their chunks are not all combined in the same way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from farandole.accesses import Longs, runs
from farandole.errors import ScheduleError
from farandole.schedule import Ints, Schedule


class Fold(IntEnum):
    """How what arrives is combined with what the receiver has."""

    DIRECT = 0  # copied over, or reduced into, the chunk
    FIRST = 1  # from the first of several lower ranks: copied to scratch
    MIDDLE = 2  # from a further lower rank: reduced into scratch
    LAST = 3  # from the last lower rank: reduced into scratch, and that into the chunk


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """The messages, one per entry of the columns, in the order of the schedule's rounds and transfers."""

    round: Ints
    src: Ints
    dst: Ints
    chunk: Ints
    count: Ints
    reduce: NDArray[np.bool_]
    fold: Ints

    def __len__(self) -> int:
        return len(self.round)


def messages(schedule: Schedule) -> Messages:
    """Cut the transfers of ``schedule``; ScheduleError where one names a rank or a chunk that cannot be."""
    table = schedule.columns()
    _check(schedule, table)
    reduce = table["reduce"].astype(np.bool_)
    row, chunk = runs(table["chunk"], table["count"])
    src, dst = table["src"][row], table["dst"][row]
    cell = (table["round"][row].astype(np.int64) * schedule.ranks + dst) * schedule.chunks + chunk
    fold = _folds(cell, src, reduce[row] & (src < dst))
    begins = np.ones(len(row), np.bool_)
    begins[1:] = (row[1:] != row[:-1]) | (fold[1:] != fold[:-1])
    first = np.flatnonzero(begins)
    transfer = row[first]
    return Messages(
        round=table["round"][transfer],
        src=table["src"][transfer],
        dst=table["dst"][transfer],
        chunk=chunk[first].astype(np.int32),
        count=np.diff(np.append(first, len(row))).astype(np.int32),
        reduce=reduce[transfer],
        fold=fold[first],
    )


def _folds(cell: Longs, src: Ints, from_lower: NDArray[np.bool_]) -> Ints:
    """The Fold of each single chunk that is moved; ``cell`` tells round, receiver and chunk apart."""
    fold = np.full(len(cell), Fold.DIRECT, np.int32)
    rows = np.flatnonzero(from_lower)
    rows = rows[np.lexsort((src[rows], cell[rows]))]
    cell = cell[rows]
    first = np.searchsorted(cell, cell)
    last = np.searchsorted(cell, cell, side="right") - 1
    place = np.arange(len(rows))
    fold[rows] = np.select(
        [first == last, place == first, place == last], [Fold.DIRECT, Fold.FIRST, Fold.LAST], Fold.MIDDLE
    )
    return fold


def _check(schedule: Schedule, table: dict[str, Ints]) -> None:
    src, dst, chunk, count = (table[name] for name in ("src", "dst", "chunk", "count"))
    bad = (np.minimum(src, dst) < 0) | (np.maximum(src, dst) >= schedule.ranks) | (src == dst)
    bad |= (chunk < 0) | (count < 1) | (chunk.astype(np.int64) + count > schedule.chunks)
    if bad.any():
        i = int(np.argmax(bad))
        where = {name: int(table[name][i]) for name in ("round", "src", "dst", "chunk", "count")}
        raise ScheduleError(
            f"round {where['round'] + 1}: a transfer of {where['count']} chunks from chunk {where['chunk']}, rank"
            f" {where['src']} to rank {where['dst']}, cannot be lowered: it must go between two different ranks below"
            f" {schedule.ranks} and carry chunks below {schedule.chunks}; verify_schedule finds all such transfers",
            **where,
        )
