"""Bind a slot program to the lengths of one call: the tables that the native engine interprets.

Chunk numbers become offsets, places become bytes into the slot, and neighbouring steps that continue each
other everywhere become one. What is empty in every slice is left out; waits never are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.errors import ResourceError
from farandole.layout import CACHE_LINE, Layout
from farandole.run.compile import INPUT, SlotProgram, Step

Table = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """Tables of int64, a row per entry; their columns are the fields of the structs in src/core/plan.hpp.

    ``stages`` (waits and steps of each), ``steps``, ``operands`` and ``waits`` (ranks).
    """

    stages: Table
    steps: Table
    operands: Table
    waits: Table


def longest_chunk(program: SlotProgram, itemsize: int, set_bytes: int) -> int:
    """How many elements a chunk may have so that all places of a slice fit ``set_bytes`` of a slot.

    Raises ResourceError where not even one cache line per place fits.
    """
    room = set_bytes // max(program.places, 1) // CACHE_LINE * CACHE_LINE
    if room < max(itemsize, CACHE_LINE):
        raise ResourceError(
            f"a slot of {set_bytes} bytes per slice is too small for {program.places} places of {CACHE_LINE} bytes;"
            " make the communicator with a larger slot_bytes",
            needed=program.places * CACHE_LINE,
            available=set_bytes,
        )
    return room // itemsize


def bind(program: SlotProgram, layout: Layout, itemsize: int) -> Bound:
    """The tables of ``program`` for chunks that lie as ``layout`` says, of ``itemsize`` bytes an element."""
    unit = -(-int(layout.length.max(initial=0)) * itemsize // CACHE_LINE) * CACHE_LINE
    rows = [_Row(step, program, layout, unit) for step in program.steps if layout.length[step.chunk] > 0]
    rows.sort(key=lambda row: (row.stage, row.after, row.chunk))
    merged: list[_Row] = []
    for row in rows:
        if merged and merged[-1].continued_by(row, itemsize):
            merged[-1].length += row.length
        else:
            merged.append(row)

    stages, steps, operands, waits = [], [], [], []
    at = 0
    for stage in range(program.stages):
        mine = [row for row in merged if row.stage == stage]
        after = sum(row.after for row in mine)
        peers = program.waits[stage]
        stages.append((len(waits), len(peers), at, len(mine) - after, after, program.announces[stage]))
        waits.extend(peers)
        at += len(mine)
        for row in mine:
            steps.append((len(operands), len(row.operands), row.length, row.limit, row.output, row.place))
            operands.extend(row.operands)
    return Bound(_table(stages, 6), _table(steps, 6), _table(operands, 2), _table(waits, 1))


def _table(rows: list[tuple[int, ...]] | list[int], columns: int) -> Table:
    return np.array(rows, np.int64).reshape(len(rows), columns)


class _Row:
    """A step with its offsets: output in elements, place and slot operands in bytes, -1 where not written."""

    __slots__ = ("after", "chunk", "length", "limit", "operands", "output", "place", "stage")

    def __init__(self, step: Step, program: SlotProgram, layout: Layout, unit: int) -> None:
        inputs = layout.input_offset(program.rank)
        outputs = layout.output_offset(program.rank)
        self.stage = step.stage
        self.chunk = step.chunk
        # The last stage is announced when all is done; before that, the slot's readers come first.
        self.after = step.place < 0 and step.stage < program.stages - 1
        self.length = int(layout.length[step.chunk])
        self.limit = int(layout.limit[step.chunk])
        self.output = int(outputs[step.chunk]) if step.to_output else -1
        self.place = step.place * unit if step.place >= 0 else -1
        self.operands: list[tuple[int, int]] = []
        for operand in step.operands:
            if operand.rank >= 0:
                self.operands.append((operand.rank, operand.place * unit))
            else:
                offsets = inputs if operand.rank == INPUT else outputs
                self.operands.append((operand.rank, int(offsets[step.chunk])))

    def continued_by(self, other: _Row, itemsize: int) -> bool:
        """Whether one step over both rows does what the two do, in every slice."""

        def follows(mine: int, theirs: int, length: int) -> bool:
            return theirs == mine + length if mine >= 0 else theirs < 0

        length, bytes_ = self.length, self.length * itemsize
        return (
            (self.stage, self.after, self.limit - length) == (other.stage, other.after, other.limit)
            and len(self.operands) == len(other.operands)
            and follows(self.output, other.output, length)
            and follows(self.place, other.place, bytes_)
            and all(
                a == b and follows(x, y, bytes_ if a >= 0 else length)
                for (a, x), (b, y) in zip(self.operands, other.operands, strict=True)
            )
        )
