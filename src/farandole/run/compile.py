"""Compile a schedule into slot programs: what the native engine runs, one program per rank.

Each value that a rank sends gets a place of its own for the whole slice, so within a slice nothing is
overwritten that someone may still read, and nobody needs to wait for readers. Every wait that is left is
needed: at stage k + 1 nothing that a rank has seen before can tell it that a peer has finished stage k.

What is received is combined in one pass over memory: all operands of a chunk in a round are folded at
once, in ascending order of the rank that held them, and the result goes to the output, the slot, or both.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from farandole.collectives import collective
from farandole.schedule import Schedule
from farandole.slots import INPUT, Operand, SlotProgram, Step


@dataclass(slots=True, eq=False)
class _Value:
    """One value of a chunk at a rank: from the round that writes it (-1: the input) to the next write.

    ``contributors`` is the bit set of the ranks whose input is in it.
    """

    rank: int
    chunk: int
    contributors: int
    written: int = -1
    operands: list[_Value] = field(default_factory=list)
    is_partial: bool = False
    first_send: int | None = None
    is_final: bool = True
    is_folded_later: bool = False
    to_output: bool = False
    place: int = -1

    @property
    def is_input(self) -> bool:
        return self.written < 0

    @property
    def stage(self) -> int | None:
        """The stage in which the value is written to the slot or the output; None: in the last one."""
        return self.first_send if self.is_input else self.written + 1

    @property
    def finishes(self) -> bool:
        """Whether writing it completes a reduction."""
        return len(self.operands) > 1 and not self.is_partial

    def seen_from(self, rank: int) -> Operand:
        """Where ``rank`` reads the value."""
        if rank == self.rank and self.is_input:
            return Operand(INPUT)
        return Operand(self.rank, self.place, self.is_partial)


def compile_schedule(schedule: Schedule) -> tuple[SlotProgram, ...]:
    """The slot programs of all ranks. The schedule must be one that the verifier accepts."""
    what = collective(schedule.collective)
    required = what.after(schedule.ranks, schedule.chunks, schedule.root)
    last = len(schedule.rounds)
    values = [v for v in _values(schedule) if _decide_where(v, bool(required[v.rank, v.chunk]))]
    values.sort(key=lambda v: (last if v.stage is None else v.stage, v.chunk))
    places = _give_places(values, schedule.ranks)
    steps: list[list[Step]] = [[] for _ in range(schedule.ranks)]
    for v in values:
        operands = tuple(o.seen_from(v.rank) for o in v.operands) or (Operand(INPUT),)
        stage = last if v.stage is None else v.stage
        steps[v.rank].append(Step(stage, v.chunk, operands, v.to_output, v.place, v.is_partial, v.finishes))
    waits, announces = _waits(schedule)
    return tuple(
        SlotProgram(rank, last + 1, places, tuple(steps[rank]), waits[rank], announces[rank])
        for rank in range(schedule.ranks)
    )


def _values(schedule: Schedule) -> list[_Value]:
    """Every value that any chunk has at any rank, with the values it is folded from."""
    held = collective(schedule.collective).before(schedule.ranks, schedule.chunks, schedule.root)
    everyone = (1 << schedule.ranks) - 1
    now = {(rank, chunk): _Value(rank, chunk, 1 << rank) for rank, chunk in np.argwhere(held).tolist()}
    values = list(now.values())
    for number, round_ in enumerate(schedule.rounds):
        arriving: dict[tuple[int, int], list[_Value]] = defaultdict(list)
        folds: dict[tuple[int, int], bool] = {}
        columns = (round_.src, round_.dst, round_.chunk, round_.count, round_.reduce)
        for src, dst, first, count, reduce in zip(*(c.tolist() for c in columns), strict=True):
            for chunk in range(first, first + count):
                value = now[src, chunk]
                if value.first_send is None:
                    value.first_send = number
                arriving[dst, chunk].append(value)
                folds[dst, chunk] = reduce
        for (rank, chunk), operands in arriving.items():
            old = now.get((rank, chunk))
            if old is not None:
                old.is_final = False
                if folds[rank, chunk]:
                    old.is_folded_later = True
                    operands.append(old)
            operands.sort(key=lambda value: value.rank)
            new = _Value(rank, chunk, sum(o.contributors for o in operands), number, operands)
            new.is_partial = new.contributors != everyone if len(operands) > 1 else operands[0].is_partial
            now[rank, chunk] = new
            values.append(new)
    return values


def _decide_where(value: _Value, required: bool) -> bool:
    """Decide whether a value goes to the output and (place 0) to the slot; False where it goes nowhere."""
    value.to_output = required and value.is_final
    if value.first_send is not None or (value.is_folded_later and not value.is_input):
        value.place = 0
    return value.to_output or value.place == 0


def _give_places(values: list[_Value], ranks: int) -> int:
    """Number the places of each rank in the order of ``values``; how many the rank with most of them uses.

    A value that nobody else reads is folded into where it stands.
    """
    used = [0] * ranks
    for value in values:
        if value.place < 0:
            continue
        mine = [o for o in value.operands if o.rank == value.rank and not o.is_input and o.first_send is None]
        if mine and value.is_partial:
            value.place = mine[0].place
        else:
            value.place = used[value.rank]
            used[value.rank] += 1
    return max(used)


def _waits(schedule: Schedule) -> tuple[list[tuple[tuple[int, ...], ...]], list[tuple[bool, ...]]]:
    """For each rank, whom it waits for in each stage, and which of its stages are waited for."""
    ranks, last = schedule.ranks, len(schedule.rounds)
    waits: list[list[tuple[int, ...]]] = [[()] for _ in range(ranks)]
    announces = np.zeros((ranks, last + 1), np.bool_)
    announces[:, last] = True
    for number, round_ in enumerate(schedule.rounds):
        announces[round_.src, number] = True
        pairs = np.unique(np.stack([round_.dst, round_.src]), axis=1)
        bounds = np.searchsorted(pairs[0], np.arange(ranks + 1))
        for rank in range(ranks):
            waits[rank].append(tuple(pairs[1, bounds[rank] : bounds[rank + 1]].tolist()))
    return [tuple(w) for w in waits], [tuple(row) for row in announces.tolist()]
