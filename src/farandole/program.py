"""Programs: what every rank does, step by step, when messages go through queues.

A schedule says what moves in each round; a program says in which order each rank does it. It is what
message-passing engines run, what exporters write and importers read. The rules of the model:

- A rank has *lanes*. The steps of a lane are carried out strictly in order; the lanes of a rank run at the
  same time. A step may wait for any number of steps of other lanes of its rank to have finished.
- A rank's memory is a row of *cells*, each as big as one chunk. Named *spaces* are stretches of it and may
  overlap: in a program that works in place, input and output are the same cells.
- A *queue* belongs to a sender, a receiver and a channel. Its messages arrive in the order they were sent;
  one lane puts in, one lane takes out.
- A queue of depth d has d slots. A send takes a slot and copies its message into it, or blocks until one is
  free; a receive blocks until its message is there, and frees the slot when it has finished. At depth 0
  (rendezvous) there is no slot: a send and its receive complete together.
- A *fused* step receives and sends. It blocks until its message is there and the slot for what it sends is
  free, and holds the slot of the former all that time.

Steps are kept as NumPy columns: the program of a 256-rank ring has a quarter of a million of them.
``Instruction`` is the same thing one at a time, for people, tests and importers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from farandole.collectives import collective as find_collective
from farandole.errors import UsageError
from farandole.schedule import Ints

Flags = NDArray[np.bool_]


class Op(IntEnum):
    """What a step does. ``read`` and ``write`` are its cells, ``received`` is the message it takes out.

    A name says it all: what is not copied is not kept, what is not sent is not sent.
    """

    NOP = 0  # nothing but wait
    COPY = 1  # write := read
    REDUCE = 2  # write := write + read
    SEND = 3  # send read
    RECV = 4  # write := received
    RECV_REDUCE = 5  # write := read + received
    RECV_COPY_SEND = 6  # write := received, and send it
    RECV_REDUCE_SEND = 7  # send read + received
    RECV_REDUCE_COPY_SEND = 8  # write := read + received, and send it


def traits(*ops: Op) -> Flags:
    """A table by op: whether it is one of these."""
    table = np.zeros(len(Op), np.bool_)
    table[list(ops)] = True
    table.flags.writeable = False
    return table


SENDS = traits(Op.SEND, Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND)
RECEIVES = traits(
    Op.RECV, Op.RECV_REDUCE, Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND
)  # fmt: skip
READS = traits(
    Op.COPY, Op.REDUCE, Op.SEND, Op.RECV_REDUCE, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND
)  # fmt: skip
WRITES = traits(
    Op.COPY, Op.REDUCE, Op.RECV, Op.RECV_REDUCE, Op.RECV_COPY_SEND, Op.RECV_REDUCE_COPY_SEND
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step: ``count`` cells from ``read`` on, ``count`` cells from ``write`` on, and the peers' ranks.

    What an op does not use stays -1. ``waits`` are the (lane, step) of the same rank that must have finished.
    """

    op: Op
    read: int = -1
    write: int = -1
    count: int = 1
    receive_from: int = -1
    send_to: int = -1
    channel: int = 0
    waits: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Space:
    """A named stretch of every rank's cells. Its cells are spoken of as ``name`` and a number from 0."""

    name: str
    start: int
    size: int


_STEP_COLUMNS = ("op", "read", "write", "count", "receive_from", "send_to", "channel")


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The fields of :class:`Instruction` as int32 columns, all steps of a program in one table."""

    op: Ints
    read: Ints
    write: Ints
    count: Ints
    receive_from: Ints
    send_to: Ints
    channel: Ints

    def __init__(self, **columns: ArrayLike) -> None:
        lengths = {name: np.size(columns[name]) for name in _STEP_COLUMNS}
        if len(set(lengths.values())) > 1:
            raise UsageError(f"the columns of steps must be of one length, not {lengths}", lengths=lengths)
        for name in _STEP_COLUMNS:
            object.__setattr__(self, name, _frozen(columns[name]))
        unknown = (self.op < 0) | (self.op >= len(Op))
        if unknown.any():
            got = int(self.op[np.argmax(unknown)])
            raise UsageError(f"an op is one of 0 to {len(Op) - 1}, not {got}", got=got)

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """What steps wait for, as int32 columns: the step with index ``at`` waits for ``step`` of ``lane``.

    ``at`` counts all steps of the program and ascends; ``lane`` counts the lanes of the same rank.
    """

    at: Ints
    lane: Ints
    step: Ints

    def __init__(self, at: ArrayLike = (), lane: ArrayLike = (), step: ArrayLike = ()) -> None:
        order = np.argsort(np.asarray(at, np.int32), kind="stable")
        for name, column in (("at", at), ("lane", lane), ("step", step)):
            object.__setattr__(self, name, _frozen(np.asarray(column, np.int32)[order]))

    def __len__(self) -> int:
        return len(self.at)


def _frozen(values: Any) -> Ints:
    column = np.array(values, np.int32)
    column.flags.writeable = False
    return column


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The lanes of all ranks, and where the chunks of the collective lie before and after.

    ``lane_rank`` is the rank of each lane, ascending; the steps of lane ``i`` are those with an index from
    ``lane_start[i]`` up to ``lane_start[i + 1]``. ``inputs[rank, chunk]`` is the cell where a rank finds a
    chunk of its input, ``outputs[rank, chunk]`` the cell where it must leave a chunk; -1 where there is none.
    """

    collective: str
    ranks: int
    chunks: int
    spaces: tuple[Space, ...]
    steps: Steps = field(repr=False)
    waits: Waits = field(repr=False)
    lane_rank: Ints = field(repr=False)
    lane_start: Ints = field(repr=False)
    inputs: Ints = field(repr=False)
    outputs: Ints = field(repr=False)
    root: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        for column in ("lane_rank", "lane_start", "inputs", "outputs"):
            object.__setattr__(self, column, _frozen(getattr(self, column)))

    @property
    def cells(self) -> int:
        """How many cells each rank has."""
        return max((space.start + space.size for space in self.spaces), default=0)

    @property
    def step_lane(self) -> Ints:
        """The lane of each step, counted over all ranks."""
        return np.repeat(np.arange(len(self.lane_rank), dtype=np.int32), np.diff(self.lane_start))

    @property
    def step_rank(self) -> Ints:
        """The rank of each step."""
        return np.repeat(self.lane_rank, np.diff(self.lane_start))

    @property
    def first_lane(self) -> Ints:
        """The first lane of each rank, counted over all ranks; one entry more than ranks."""
        return np.searchsorted(self.lane_rank, np.arange(self.ranks + 1)).astype(np.int32)

    def position(self, index: int) -> tuple[int, int, int]:
        """The rank, the lane within the rank, and the step within the lane, of the step with that index."""
        lane = int(np.searchsorted(self.lane_start, index, side="right")) - 1
        rank = int(self.lane_rank[lane])
        return rank, lane - int(self.first_lane[rank]), index - int(self.lane_start[lane])

    def instruction(self, index: int) -> Instruction:
        """The step with that index."""
        values = {name: int(getattr(self.steps, name)[index]) for name in _STEP_COLUMNS}
        low, high = np.searchsorted(self.waits.at, [index, index + 1])
        waits = zip(self.waits.lane[low:high].tolist(), self.waits.step[low:high].tolist(), strict=True)
        return Instruction(op=Op(values.pop("op")), waits=tuple(waits), **values)

    def lanes(self) -> list[list[list[Instruction]]]:
        """Every instruction, by rank, lane and step; :func:`program_of` is the way back."""
        waits: dict[int, tuple[tuple[int, int], ...]] = {}
        for at, lane, step in zip(
            self.waits.at.tolist(), self.waits.lane.tolist(), self.waits.step.tolist(), strict=True
        ):
            waits[at] = (*waits.get(at, ()), (lane, step))
        rows = zip(*(getattr(self.steps, name).tolist() for name in _STEP_COLUMNS), strict=True)
        steps = [
            Instruction(Op(op), read, write, count, receive_from, send_to, channel, waits.get(index, ()))
            for index, (op, read, write, count, receive_from, send_to, channel) in enumerate(rows)
        ]
        by_rank: list[list[list[Instruction]]] = [[] for _ in range(self.ranks)]
        for rank, (start, stop) in zip(self.lane_rank.tolist(), pairwise(self.lane_start.tolist()), strict=True):
            by_rank[rank].append(steps[start:stop])
        return by_rank

    def cell_name(self, cell: int) -> str:
        """A cell as people call it: ``chunk 3``, ``scratch 0``."""
        for space in self.spaces:
            if space.start <= cell < space.start + space.size:
                return f"{'chunk' if space.name == 'data' else space.name} {cell - space.start}"
        return f"cell {cell}"

    def chunk_of_cell(self, cell: int) -> int:
        """The chunk that a cell is meant for, in a program that works in place; -1 for any other cell."""
        first = self.spaces[0] if self.spaces else None
        return cell if first is not None and first.name == "data" and 0 <= cell < first.size else -1

    def describe(self, index: int) -> str:
        """What the step with that index does, in words, such as ``send chunk 1 to rank 2``."""
        step = self.instruction(index)
        channel = f" on channel {step.channel}" if step.channel else ""
        from_whom, to_whom = f"from rank {step.receive_from}{channel}", f"to rank {step.send_to}{channel}"
        read, write = self._cells_name(step.read, step.count), self._cells_name(step.write, step.count)
        operand = f"{read} into {write}" if WRITES[step.op] and step.read != step.write else f"into {read}"
        return {
            Op.NOP: "do nothing",
            Op.COPY: f"copy {read} to {write}",
            Op.REDUCE: f"reduce {read} into {write}",
            Op.SEND: f"send {read} {to_whom}",
            Op.RECV: f"receive {write} {from_whom}",
            Op.RECV_REDUCE: f"receive {from_whom} and reduce {operand}",
            Op.RECV_COPY_SEND: f"receive {write} {from_whom} and send it {to_whom}",
            Op.RECV_REDUCE_SEND: f"receive {from_whom}, reduce with {read} and send the result {to_whom}",
            Op.RECV_REDUCE_COPY_SEND: f"receive {from_whom}, reduce {operand} and send the result {to_whom}",
        }[step.op]

    def _cells_name(self, first: int, count: int) -> str:
        return self.cell_name(first) + (f" to {self.cell_name(first + count - 1)}" if count > 1 else "")


def program_of(
    collective: str,
    lanes: Sequence[Sequence[Sequence[Instruction]]],
    chunks: int,
    *,
    scratch: int = 0,
    root: int = 0,
    name: str = "",
    spaces: Sequence[Space] = (),
    inputs: ArrayLike | None = None,
    outputs: ArrayLike | None = None,
) -> Program:
    """A program written out: ``lanes[rank][lane][step]``.

    Without ``spaces`` it works in place: cell c holds chunk c, and ``scratch`` more cells follow. With them,
    ``inputs`` and ``outputs`` say which chunk lies where (see :class:`Program`); both have shape
    (ranks, chunks). Raises UsageError where they have another, or where the collective has no such chunks.
    """
    flat = [(rank, lane) for rank, of_rank in enumerate(lanes) for lane in of_rank]
    steps = [step for _, lane in flat for step in lane]
    waits = [(index, *wait) for index, step in enumerate(steps) for wait in step.waits]
    ranks = len(lanes)
    places = places_in_place(collective, ranks, chunks, root)
    chosen = [places[i] if given is None else np.asarray(given, np.int32) for i, given in enumerate((inputs, outputs))]
    for table in chosen:
        if table.shape != (ranks, chunks):
            raise UsageError(
                f"inputs and outputs have one cell per rank and chunk: shape {(ranks, chunks)}, not {table.shape}",
                expected=(ranks, chunks),
                got=table.shape,
            )
    at, lane_of, step_of = zip(*waits, strict=True) if waits else ((), (), ())
    return Program(
        collective=collective,
        ranks=ranks,
        chunks=chunks,
        spaces=tuple(spaces) or data_and_scratch(chunks, scratch),
        steps=Steps(**{name_: [getattr(step, name_) for step in steps] for name_ in _STEP_COLUMNS}),
        waits=Waits(at, lane_of, step_of),
        lane_rank=np.array([rank for rank, _ in flat], np.int32),
        lane_start=np.cumsum([0, *(len(lane) for _, lane in flat)], dtype=np.int32),
        inputs=chosen[0],
        outputs=chosen[1],
        root=root,
        name=name,
    )


def data_and_scratch(chunks: int, scratch: int) -> tuple[Space, ...]:
    """The spaces of a program that works in place: cell c holds chunk c, then come the scratch cells."""
    data = Space("data", 0, chunks)
    return (data, Space("scratch", chunks, scratch)) if scratch else (data,)


def places_in_place(collective: str, ranks: int, chunks: int, root: int) -> tuple[Ints, Ints]:
    """``inputs`` and ``outputs`` of a program that works in place: chunk c lies in cell c."""
    what = find_collective(collective)
    what.check_chunks(ranks, chunks)
    cell = np.arange(chunks, dtype=np.int32)
    held, required = what.before(ranks, chunks, root), what.after(ranks, chunks, root)
    return np.where(held, cell, -1), np.where(required, cell, -1)
