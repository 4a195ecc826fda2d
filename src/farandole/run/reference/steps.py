"""The rounds of a schedule, sorted out for the reference engine: what is copied, and what is folded in which order.

A schedule that has no defined outcome is refused here: one that sends or reduces what is not held, that writes
a chunk twice in a round other than by reductions, or that leaves the world. Whether the outcome is the right
one is the verifier's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from farandole.collectives import collective
from farandole.errors import ScheduleError
from farandole.schedule import Bools, Round, Schedule

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One round, sorted out: chunks to copy, and the k-th operands of all folds, for k = 0, 1, ...

    ``copies`` are (src, dst, chunk). ``folds`` are (dst, chunk). Each of ``operands`` is (fold, holder): which
    of the folds have a k-th operand, and the rank that holds it.
    """

    copies: tuple[Rows, Rows, Rows]
    folds: tuple[Rows, Rows]
    operands: tuple[tuple[Rows, Rows], ...]


@lru_cache(maxsize=8)
def sorted_out(schedule: Schedule) -> tuple[Bools, list[Step]]:
    """Which (rank, chunk) ever hold a value, and the steps; ScheduleError where the outcome is undefined.

    The last few are kept, since most schedules are carried out many times.
    """
    what = collective(schedule.collective)
    held = what.before(schedule.ranks, schedule.chunks, schedule.root)
    steps = [_step(round_, number, held) for number, round_ in enumerate(schedule.rounds)]
    lacking = np.argwhere(what.after(schedule.ranks, schedule.chunks, schedule.root) & ~held)
    if len(lacking):
        rank, chunk = lacking[0].tolist()
        raise ScheduleError(f"at the end, rank {rank} does not hold chunk {chunk}", rank=rank, chunk=chunk)
    return held, steps


def _step(round_: Round, number: int, held: Bools) -> Step:
    """Sort out one round, and mark in ``held`` what it writes."""
    src, dst, chunk, reduce = _singly(round_, number, *held.shape)
    _require(held[src, chunk], "sends", src, chunk, number)
    _require(held[dst, chunk] | ~reduce, "is to reduce into", dst, chunk, number)

    target, first = np.unique(dst * held.shape[1] + chunk, return_inverse=True)
    copied = np.bincount(first, ~reduce, len(target)) > 0
    crowded = np.flatnonzero(copied & (np.bincount(first, minlength=len(target)) > 1))
    if len(crowded):
        rank, which = (int(part) for part in divmod(target[crowded[0]], held.shape[1]))
        raise ScheduleError(
            f"round {number + 1}: chunk {which} of rank {rank} is written more than once, and not by reductions only",
            rank=rank, round=number, chunk=which,
        )  # fmt: skip
    held[dst, chunk] = True

    folded, copy = target[~copied], ~reduce
    fold = np.concatenate([np.searchsorted(folded, (dst * held.shape[1] + chunk)[reduce]), np.arange(len(folded))])
    holder = np.concatenate([src[reduce], folded // held.shape[1]])
    order = np.lexsort((holder, fold))
    fold, holder = fold[order], holder[order]
    position = np.arange(len(fold)) - np.searchsorted(fold, fold)
    most = int(position.max(initial=-1)) + 1
    return Step(
        copies=(src[copy], dst[copy], chunk[copy]),
        folds=(folded // held.shape[1], folded % held.shape[1]),
        operands=tuple((fold[position == k], holder[position == k]) for k in range(most)),
    )


def _singly(round_: Round, number: int, ranks: int, chunks: int) -> tuple[Rows, Rows, Rows, Bools]:
    """The transfers of a round, one chunk each: src, dst, chunk, reduce."""
    lowest, highest = np.minimum(round_.src, round_.dst), np.maximum(round_.src, round_.dst)
    runs_over = round_.chunk.astype(np.int64) + round_.count > chunks
    bad = np.flatnonzero((lowest < 0) | (highest >= ranks) | (round_.chunk < 0) | (round_.count < 1) | runs_over)
    if len(bad):
        raise ScheduleError(
            f"round {number + 1}: transfer {bad[0]} is outside a world of {ranks} ranks and {chunks} chunks",
            round=number,
            transfer=int(bad[0]),
        )
    row = np.repeat(np.arange(len(round_)), round_.count)
    within = np.arange(len(row)) - np.repeat(np.cumsum(round_.count) - round_.count, round_.count)
    columns = (round_.src[row], round_.dst[row], round_.chunk[row] + within)
    src, dst, chunk = (column.astype(np.intp) for column in columns)
    return src, dst, chunk, round_.reduce[row]


def _require(holds: Bools, verb: str, rank: Rows, chunk: Rows, number: int) -> None:
    for i in np.flatnonzero(~holds)[:1]:
        raise ScheduleError(
            f"round {number + 1}: rank {rank[i]} {verb} chunk {chunk[i]}, which it does not hold",
            rank=int(rank[i]),
            round=number,
            chunk=int(chunk[i]),
        )
