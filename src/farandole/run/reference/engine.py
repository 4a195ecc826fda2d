"""The reference engine: any number of ranks in one process, with true values, on NumPy arrays.

It carries out a schedule exactly as :mod:`farandole.schedule` defines it: all transfers of a round carry what
the sender held before it, and what is reduced into one chunk is folded in ascending order of the rank that
held it. It is for tests, for teaching, and for trying out code for many ranks without a cluster.

Buffers are NumPy arrays of any length, also shorter than the number of chunks. What a rank gives and gets:

======================  ==========================================  ====================================
collective              input                                       output
======================  ==========================================  ====================================
all_reduce, reduce      an array of one shape on every rank         the same shape; reduce: at the root
broadcast               the root's array, None elsewhere            the same shape on every rank
reduce_scatter          all blocks, one after the other             one's own block
all_gather, gather      one's own block                             all blocks; gather: at the root
scatter                 the root's blocks, None elsewhere           one's own block
all_to_all              a block for every rank, one after another   a block from every rank, likewise
barrier                 None                                        None
======================  ==========================================  ====================================

Blocks lie one after another along the first axis. ``counts`` are their lengths there, one per rank, or for
all_to_all a table of (sender, receiver); by default a buffer is shared out as evenly as can be, the first
blocks one row longer.

It is written for all ranks at once: the chunks of one length that are ever held by any rank are the rows of
one array, and a round is a few operations on rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from farandole.collectives import Blocks, collective
from farandole.layout import Layout, layout
from farandole.ops import DType, Op, Values, check_reduction, find_op
from farandole.run.reference.buffers import Buffers, accept
from farandole.run.reference.steps import Rows, Step, sorted_out
from farandole.schedule import Bools, Schedule

Outputs = list[Values | None]


def execute(
    schedule: Schedule,
    inputs: Sequence[ArrayLike | None] | None = None,
    op: str = "sum",
    counts: ArrayLike | None = None,
    *,
    dtype: str | None = None,
    longest_chunk: int | None = None,
) -> Outputs:
    """Carry out ``schedule`` on one input per rank; one output per rank, None where a rank has none.

    ``dtype`` is needed for bfloat16 only, which is given and returned as its bits, in uint16 arrays.
    ``longest_chunk`` (in elements) cuts long buffers into slices, as the native engine does.

    Raises LengthError, UnsupportedError or UsageError for inputs that do not fit, and ScheduleError for a
    schedule that has no defined outcome; one that has, but the wrong one, is carried out all the same.

    >>> from farandole.algorithms import build
    >>> execute(build("all_reduce", "ring", 3), [[1, 2], [3, 4], [5, 6]])
    [array([ 9, 12]), array([ 9, 12]), array([ 9, 12])]
    """
    what = collective(schedule.collective)
    buffers = accept(what, schedule.ranks, schedule.root, inputs, counts=counts, dtype=dtype)
    operation = find_op(op)
    if what.reduces:
        check_reduction(operation, buffers.dtype)
    where = layout(
        what, schedule.ranks, schedule.chunks, buffers.counts,
        root=schedule.root, itemsize=buffers.dtype.itemsize, longest_chunk=longest_chunk,
    )  # fmt: skip
    held, steps = sorted_out(schedule)
    outputs = _empty_outputs(schedule, where, buffers)
    for number in range(where.slices):
        _Slice(held, where, number, buffers.dtype, operation).carry_out(steps, buffers.inputs, outputs)
    whole = what.blocks is Blocks.WHOLE
    rows = layout(what, schedule.ranks, schedule.chunks, buffers.rows, root=schedule.root)
    return [
        None if output is None else buffers.returned(output, rows.output_length(rank), whole=whole)
        for rank, output in enumerate(outputs)
    ]


class _Slice:
    """The values of one slice, while it is carried out.

    ``row[rank, chunk]`` is a row of ``values[group[chunk]]``, where a group is all chunks of one length. Where
    values are reduced they are kept in the dtype in which they are accumulated.
    """

    def __init__(self, held: Bools, where: Layout, number: int, dtype: DType, op: Op) -> None:
        self.where, self.dtype, self.op = where, dtype, op
        self.begin = number * where.stride
        self.reduces = where.collective.reduces
        length = np.clip(where.limit - self.begin, 0, where.length)
        lengths, self.group = np.unique(length, return_inverse=True)
        self.held, self.row = held, np.zeros(held.shape, np.intp)
        self.values: list[Values] = []
        for group, size in enumerate(lengths.tolist()):
            rank, chunk = np.nonzero(held & (self.group == group))
            self.row[rank, chunk] = np.arange(len(rank))
            self.values.append(np.zeros((len(rank), size), dtype.accumulator if self.reduces else dtype.storage))

    def carry_out(self, steps: list[Step], inputs: Sequence[Values | None], outputs: Outputs) -> None:
        """From the inputs, through all steps, into the outputs."""
        for rank, given in enumerate(inputs):
            if given is not None:
                for values, rows, places in self._places(rank, self.where.input_offset(rank)):
                    values[rows] = self.dtype.widen(given[places]) if self.reduces else given[places]
        for step in steps:
            for group, values in enumerate(self.values):
                if values.size:
                    self._one_step(step, group, values)
        for rank, output in enumerate(outputs):
            if output is not None:
                for values, rows, places in self._places(rank, self.where.output_offset(rank)):
                    output[places] = self._finished(values[rows])

    def _places(self, rank: int, offset: NDArray[np.int64]) -> Iterator[tuple[Values, Rows, Rows]]:
        """For each group: its values, the rows of this rank's chunks, and where those lie in its buffer."""
        for group, values in enumerate(self.values):
            chunk = np.flatnonzero((self.group == group) & (offset >= 0))
            if values.shape[1] and len(chunk):
                start = offset[chunk] + self.begin
                yield values, self.row[rank, chunk], start[:, None] + np.arange(values.shape[1])

    def _finished(self, complete: Values) -> Values:
        return self.dtype.narrow(self.op.finish(complete, self.where.ranks)) if self.reduces else complete

    def _one_step(self, step: Step, group: int, values: Values) -> None:
        src, dst, chunk = (column[self.group[step.copies[2]] == group] for column in step.copies)
        copied = values[self.row[src, chunk]]
        mine = self.group[step.folds[1]] == group
        if mine.any():
            to, what = (column[mine] for column in step.folds)
            values[self.row[to, what]] = self._fold(step, mine, values)
        values[self.row[dst, chunk]] = copied

    def _fold(self, step: Step, mine: Bools, values: Values) -> Values:
        """The folds of one group of chunks, from the left."""
        place = np.cumsum(mine) - 1
        total = values[:0]
        for number, (fold, holder) in enumerate(step.operands):
            chosen = mine[fold]
            at, source = place[fold[chosen]], self.row[holder[chosen], step.folds[1][fold[chosen]]]
            operand = values[source]
            if number == 0:  # every fold has one: the receiver's own value is an operand
                total = operand
            elif len(at) == len(total):
                self.op.combine(total, operand)
            else:
                total[at] = self.op.combine(total[at], operand)
        return total


def _empty_outputs(schedule: Schedule, where: Layout, buffers: Buffers) -> Outputs:
    what = collective(schedule.collective)
    required = np.logical_or.reduce(what.after(schedule.ranks, schedule.chunks, schedule.root), axis=1)
    return [
        np.zeros(where.output_length(rank), buffers.dtype.storage) if holds and what.moves_data else None
        for rank, holds in enumerate(required.tolist())
    ]
