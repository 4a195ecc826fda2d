"""Bind a slot program to the lengths of one call: the tables that the native engine interprets.

Chunk numbers become offsets, places become bytes into the slot, and neighbouring steps that continue each
other everywhere become one. What is empty in every slice is left out, and so are the waits for ranks of which nothing
is read then: a rank that expects nothing goes on at once. A call in which nothing is read at all keeps its waits: a
barrier is there for them, and the others are like it when they are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.errors import ResourceError
from farandole.layout import CACHE_LINE, Layout
from farandole.slots import INPUT, SlotProgram, Step

Table = NDArray[np.int64]

_WORD = 8
BESIDE_FLAG_BYTES = CACHE_LINE - _WORD  # as in src/core/segment.hpp: what shares its cache line


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """Tables of int64, a row per entry; their columns are the fields of the structs in src/core/plan.hpp.

    ``stages`` (waits and steps of each), ``steps``, ``operands`` and ``waits`` (ranks). ``chunks`` is for those who
    explain a step: its first chunk, and how many. ``set_bytes`` is how much of a slot a slice takes, on the rank
    where it takes most.
    """

    stages: Table
    steps: Table
    operands: Table
    waits: Table
    chunks: Table
    set_bytes: int


def input_of(rank: int) -> int:
    """How the tables of operands say that the input of that rank is meant."""
    return INPUT - 1 - rank


def rank_of(operand: int) -> int:
    """The rank whose slot or input an operand in the tables is; INPUT for the own input."""
    return operand if operand >= INPUT else INPUT - 1 - operand


def longest_chunk(program: SlotProgram, slot_itemsize: int, set_bytes: int) -> int:
    """How many elements a chunk may have so that all places of a slice fit ``set_bytes`` of a slot.

    An element takes ``slot_itemsize`` bytes there.

    Raises ResourceError where not even one cache line per place fits.
    """
    room = set_bytes // max(program.places, 1) // CACHE_LINE * CACHE_LINE
    if room < slot_itemsize:
        raise ResourceError(
            f"a slot of {set_bytes} bytes per slice is too small for {program.places} places of {CACHE_LINE} bytes;"
            " make the communicator with a larger slot_bytes",
            needed=program.places * CACHE_LINE,
            available=set_bytes,
        )
    return room // slot_itemsize


def bind(program: SlotProgram, layout: Layout, itemsize: int, partial_itemsize: int) -> Bound:
    """The tables of ``program`` for chunks that lie as ``layout`` says.

    An element has ``itemsize`` bytes, and ``partial_itemsize`` (no less) while it is a partial value.
    """
    unit = _unit(program.places, int(layout.length.max(initial=0)) * partial_itemsize)
    sizes = (itemsize, partial_itemsize)
    rows = [_Row(step, program, layout, unit) for step in program.steps if layout.length[step.chunk] > 0]
    rows.sort(key=lambda row: (row.stage, row.after, row.chunk))
    merged: list[_Row] = []
    for row in rows:
        if merged and merged[-1].continued_by(row, sizes):
            merged[-1].length += row.length
            merged[-1].chunks = row.chunk + 1 - merged[-1].chunk
        else:
            merged.append(row)

    stages: list[Sequence[int]] = []
    steps: list[Sequence[int]] = []
    operands: list[Sequence[int]] = []
    waits: list[int] = []
    chunks: list[Sequence[int]] = []
    at, moves_anything = 0, bool(layout.length.any())
    for stage in range(program.stages):
        mine = [row for row in merged if row.stage == stage]
        after = sum(row.after for row in mine)
        peers = program.waits[stage]
        if moves_anything:
            read = {rank_of(rank) for row in mine for rank, _, _ in row.operands}
            peers = tuple(peer for peer in peers if peer in read)
        stages.append((len(waits), len(peers), at, len(mine) - after, after, program.announces[stage]))
        waits.extend(peers)
        at += len(mine)
        for row in mine:
            where = (row.output, row.place, row.is_partial, row.finishes)
            steps.append((len(operands), len(row.operands), row.length, row.limit, *where))
            operands.extend(row.operands)
            chunks.append((row.chunk, row.chunks))
    tables = (_table(stages, 6), _table(steps, 8), _table(operands, 3), _table(waits, 1), _table(chunks, 2))
    return Bound(*tables, program.places * unit)


def _unit(places: int, size_bytes: int) -> int:
    """How far apart places of so many bytes are: whole cache lines, unless all of them fit beside a flag."""
    close = -(-size_bytes // _WORD) * _WORD
    return close if places * close <= BESIDE_FLAG_BYTES else -(-size_bytes // CACHE_LINE) * CACHE_LINE


def _table(rows: Sequence[Sequence[int]] | Sequence[int], columns: int) -> Table:
    return np.array(rows, np.int64).reshape(len(rows), columns)


class _Row:
    """A step with its offsets: output in elements, place and slot operands in bytes, -1 where not written."""

    __slots__ = (
        "after",
        "chunk",
        "chunks",
        "finishes",
        "is_partial",
        "length",
        "limit",
        "operands",
        "output",
        "place",
        "stage",
    )

    def __init__(self, step: Step, program: SlotProgram, layout: Layout, unit: int) -> None:
        inputs = layout.input_offset(program.rank)
        outputs = layout.output_offset(program.rank)
        self.stage = step.stage
        self.chunk = step.chunk
        self.chunks = 1
        # The last stage is announced when all is done; before that, the slot's readers come first.
        self.after = step.place < 0 and step.stage < program.stages - 1
        self.length = int(layout.length[step.chunk])
        self.limit = int(layout.limit[step.chunk])
        self.output = int(outputs[step.chunk]) if step.to_output else -1
        self.place = step.place * unit if step.place >= 0 else -1
        self.is_partial = step.is_partial
        self.finishes = step.finishes
        self.operands: list[tuple[int, int, bool]] = []
        for operand in step.operands:
            if operand.rank == INPUT:
                self.operands.append((INPUT, int(inputs[step.chunk]), False))
            elif operand.place == INPUT:
                theirs = int(layout.input_offset(operand.rank)[step.chunk])
                self.operands.append((input_of(operand.rank), theirs, False))
            else:
                self.operands.append((operand.rank, operand.place * unit, operand.is_partial))

    def continued_by(self, other: _Row, sizes: tuple[int, int]) -> bool:
        """Whether one step over both rows does what the two do, in every slice."""

        def follows(mine: int, theirs: int, step: int) -> bool:
            return theirs == mine + step if mine >= 0 else theirs < 0

        def kind(row: _Row) -> tuple[object, ...]:
            return (row.stage, row.after, row.is_partial, row.finishes, [(o[0], o[2]) for o in row.operands])

        length = self.length
        return (
            kind(self) == kind(other)
            and other.limit == self.limit - length
            and follows(self.output, other.output, length)
            and follows(self.place, other.place, length * sizes[self.is_partial])
            and all(
                follows(x, y, length * sizes[is_partial] if rank >= 0 else length)
                for (rank, x, is_partial), (_, y, _) in zip(self.operands, other.operands, strict=True)
            )
        )
