"""What a program computes: the steps carried out on symbols instead of numbers.

A cell holds a chunk's number and the set of the ranks whose input has gone into it, or nothing. A message
holds what its sender had. In a program without races all executions compute the same, so one is enough.

The rules, by the word in ``Problem.rule``:

- ``not-held``: a step sends, copies or reduces what is not there;
- ``counted-twice``: a reduction of sets that overlap;
- ``mixed-chunks``: a reduction of two different chunks;
- ``missing``, ``wrong``: at the end, a cell lacks contributions, or has others, or another chunk, than it should.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.accesses import Longs, is_in_memory, runs
from farandole.collectives import collective
from farandole.program import READS, RECEIVES, SENDS, WRITES, Op, Program, traits
from farandole.schedule import Ints, Schedule
from farandole.verify.happens_before import Run
from farandole.verify.report import Problem, problem_at
from farandole.verify.schedule import Bits, contributions_after, held_of_all, in_words
from farandole.verify.traffic import Traffic

REDUCES = traits(Op.REDUCE, Op.RECV_REDUCE, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND)


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """Rows of values: the chunk's number, -1 for nothing, and the contributions, shape (rows, words)."""

    chunk: Ints
    bits: Bits

    def __getitem__(self, rows: Longs) -> _Values:
        return _Values(self.chunk[rows], self.bits[rows])

    def put(self, rows: Longs, values: _Values, which: NDArray[np.bool_]) -> None:
        """Write those of ``values`` that ``which`` names, in place."""
        self.chunk[rows[which]] = values.chunk[which]
        self.bits[rows[which]] = values.bits[which]

    @property
    def is_there(self) -> NDArray[np.bool_]:
        return self.chunk >= 0


def _nothing(rows: int, words: int) -> _Values:
    return _Values(np.full(rows, -1, np.int32), np.zeros((rows, words), np.uint64))


@dataclass(frozen=True, slots=True, eq=False)
class _Moves:
    """What the steps do to single cells, in the order in which they run.

    ``read`` and ``write`` are cells over all ranks, ``taken`` and ``sent`` are places in messages; the last
    cell and the last place, which always hold nothing, stand for what a step does not use.
    """

    step: Ints
    op: Ints
    read: Longs
    write: Longs
    taken: Longs
    sent: Longs
    message_places: int


def value_problems(program: Program, messages: Traffic, done: Run) -> Iterator[Problem]:
    """Carry out the steps that ran, and say what is wrong; with the final state, if all ran."""
    moves = _moves(program, messages, done)
    cells = _inputs(program)
    in_flight = _nothing(moves.message_places + 1, cells.bits.shape[1])
    turn = done.turn[moves.step]
    bounds = np.append(np.flatnonzero(np.diff(turn, prepend=-1)), len(turn))
    for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield from _carry_out(program, moves, slice(first, stop), cells, in_flight)
    if done.is_complete:
        yield from _final_problems(program, cells)


def _inputs(program: Program) -> _Values:
    own = held_of_all(program.ranks)
    cells = _nothing(program.ranks * program.cells + 1, own.shape[1])
    rank, chunk = np.nonzero((program.inputs >= 0) & (program.inputs < program.cells))
    where = rank * program.cells + program.inputs[rank, chunk]
    cells.chunk[where] = chunk
    cells.bits[where] = own[rank]
    return cells


def _moves(program: Program, messages: Traffic, done: Run) -> _Moves:
    steps = program.steps
    usable = is_in_memory(program)
    size = np.where(usable & SENDS[steps.op], steps.count, 0).astype(np.int64)
    message_start = np.cumsum(size) - size
    places, no_cell = int(size.sum()), program.ranks * program.cells
    chosen = np.flatnonzero((done.turn >= 0) & usable & (steps.op != Op.NOP))
    chosen = chosen[np.argsort(done.turn[chosen], kind="stable")]
    row, offset = runs(np.zeros(len(chosen), np.int64), steps.count[chosen])
    step = chosen[row]
    op = steps.op[step]
    base = program.step_rank[step].astype(np.int64) * program.cells + offset
    sender = messages.sender_of[step]
    arrives = RECEIVES[op] & (sender >= 0) & (offset < size[sender])
    return _Moves(
        step=step.astype(np.int32),
        op=op,
        read=np.where(READS[op], base + steps.read[step], no_cell),
        write=np.where(WRITES[op], base + steps.write[step], no_cell),
        taken=np.where(arrives, message_start[sender] + offset, places),
        sent=np.where(SENDS[op], message_start[step] + offset, places),
        message_places=places,
    )


def _carry_out(program: Program, moves: _Moves, now: slice, cells: _Values, in_flight: _Values) -> Iterator[Problem]:
    """Carry out moves that nothing orders among themselves, on ``cells`` and ``in_flight`` in place."""
    op, write, sent = moves.op[now], moves.write[now], moves.sent[now]
    local, received = cells[moves.read[now]], in_flight[moves.taken[now]]
    target = cells[np.where(op == Op.REDUCE, write, len(cells.chunk) - 1)]
    for i in np.flatnonzero(READS[op] & ~local.is_there):
        yield _not_held(program, int(moves.step[now][i]), int(moves.read[now][i]))
    for i in np.flatnonzero((op == Op.REDUCE) & ~target.is_there):
        yield _not_held(program, int(moves.step[now][i]), int(write[i]))

    other = _Values(
        np.where(op == Op.REDUCE, target.chunk, received.chunk),
        np.where((op == Op.REDUCE)[:, None], target.bits, received.bits),
    )
    both = REDUCES[op] & local.is_there & other.is_there
    for i in np.flatnonzero(both & (local.chunk != other.chunk)):
        one, two = sorted((int(local.chunk[i]), int(other.chunk[i])))
        yield problem_at(
            program, int(moves.step[now][i]), "mixed-chunks", f"chunks {one} and {two} are reduced into one",
            "the same chunk", f"chunks {one} and {two}", one,
        )  # fmt: skip
    twice = local.bits & other.bits
    for i in np.flatnonzero(both & (local.chunk == other.chunk) & twice.any(axis=1)):
        chunk, who = int(local.chunk[i]), in_words(twice[i])
        yield problem_at(
            program, int(moves.step[now][i]), "counted-twice", f"in chunk {chunk}, the contribution of {who} is counted"
            " twice", "disjoint contributions", f"{who} twice", chunk,
        )  # fmt: skip
    result = _Values(np.where(local.is_there, local.chunk, other.chunk), local.bits | other.bits)
    cells.put(write, result, WRITES[op])
    in_flight.put(sent, result, SENDS[op])


def _not_held(program: Program, index: int, cell: int) -> Problem:
    name = program.cell_name(cell % program.cells)
    chunk = program.chunk_of_cell(cell % program.cells)
    return problem_at(program, index, "not-held", f"{name} holds nothing", f"a value in {name}", "nothing", chunk)


def _final_problems(program: Program, cells: _Values) -> Iterator[Problem]:
    required = collective(program.collective).after(program.ranks, program.chunks, program.root)
    expected = contributions_after(Schedule(program.collective, program.ranks, program.chunks, (), program.root))
    rank, chunk = np.nonzero(required & (program.outputs >= 0) & (program.outputs < program.cells))
    where = rank * program.cells + program.outputs[rank, chunk]
    got = cells[where]
    for i in np.flatnonzero((got.chunk != chunk) | (got.bits != expected[chunk]).any(axis=1)):
        name, of, want = program.cell_name(int(where[i]) % program.cells), int(chunk[i]), expected[chunk[i]]
        lacks = want & ~got.bits[i]
        found = f"chunk {got.chunk[i]} of {in_words(got.bits[i])}" if got.chunk[i] >= 0 else "nothing"
        wanted = f"chunk {of} of {in_words(want)}"
        yield Problem(
            "missing" if got.chunk[i] in (-1, of) and lacks.any() else "wrong",
            f"at the end, {name} of rank {rank[i]} holds {found}, not {wanted}",
            int(rank[i]), -1, of, wanted, found,
        )  # fmt: skip
