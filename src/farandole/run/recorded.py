"""What the engine's records of a call mean: the events of one rank, from its plan and its schedule.

A record says which wait, step or announcement of the plan it was (``src/core/recording.hpp``). Stage k + 1 of a plan
takes in what round k of the schedule brings, and stage k makes ready what round k sends. A step that reads peers'
memory is one event for each transfer that it takes in, all of the same times: they are combined in one pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from farandole.collectives import collective
from farandole.layout import Layout
from farandole.run.bind import Bound, rank_of
from farandole.schedule import Schedule
from farandole.slots import INPUT
from farandole.trace import KINDS

Table = NDArray[np.int64]

FIELDS = ("kind", "round", "slice", "peer", "chunk", "count", "size_bytes", "start_ns", "end_ns")
_WAITED_FOR_ROOM, _WAITED, _STEPPED, _ANNOUNCED = range(4)
_RECORD_COLUMNS = 5
_RECEIVE, _REDUCE, _WAIT, _COPY, _PUBLISH = map(KINDS.index, ("receive", "reduce", "wait", "copy", "publish"))

_Part = tuple[int, int, int, int, int]  # kind, round, peer, first chunk, count


def events(records: bytes, tables: Bound, schedule: Schedule, layout: Layout, rank: int, itemsize: int) -> Table:
    """The events of ``rank`` in one call, in order: a row each, with the columns ``FIELDS``; times are the clock's."""
    rounds, stages = len(schedule.rounds), tables.stages
    stage_of_wait = np.repeat(np.arange(len(stages)), stages[:, 1]).tolist()
    stage_of_step = np.repeat(np.arange(len(stages)), stages[:, 3] + stages[:, 4]).tolist()
    arriving = _arriving(schedule, rank)
    parts = [list(_parts(tables, step, stage, rank, rounds, arriving)) for step, stage in enumerate(stage_of_step)]
    moves_data = collective(schedule.collective).moves_data
    bytes_before: dict[int, list[int]] = {}
    rows: list[tuple[int, ...]] = []
    for did, index, slice_, begin, end in np.frombuffer(records, np.int64).reshape(-1, _RECORD_COLUMNS).tolist():
        if did == _WAITED_FOR_ROOM:
            rows.append((_WAIT, -1, slice_, index, -1, 0, 0, begin, end))
        elif did == _WAITED:
            round_, peer = stage_of_wait[index] - 1, int(tables.waits[index, 0])
            rows.append((_WAIT, round_, slice_, peer, -1, 0, 0, begin, end))
            if not moves_data:  # what such a transfer brings is there when the wait is over
                rows += [(_RECEIVE, round_, slice_, peer, *which, 0, end, end) for which in arriving[round_, peer]]
        elif did == _ANNOUNCED:
            rows.append((_PUBLISH, index if index < rounds else -1, slice_, -1, -1, 0, 0, begin, end))
        elif did == _STEPPED:
            if slice_ not in bytes_before:
                bytes_before[slice_] = _bytes_before(layout, slice_, itemsize)
            before = bytes_before[slice_]
            for kind, round_, peer, chunk, count in parts[index]:
                size = before[chunk + count] - before[chunk]
                if size:  # nothing is left of it in this slice
                    rows.append((kind, round_, slice_, peer, chunk, count, size, begin, end))
    return np.array(rows, np.int64).reshape(len(rows), len(FIELDS))


def _arriving(schedule: Schedule, rank: int) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """By round and sender: the chunks that each of its transfers to ``rank`` has, as the first one and how many."""
    arriving: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for number, round_ in enumerate(schedule.rounds):
        mine = np.flatnonzero(round_.dst == rank)
        columns = (round_.src[mine], round_.chunk[mine], round_.count[mine])
        for src, chunk, count in zip(*(column.tolist() for column in columns), strict=True):
            arriving[number, src].append((chunk, count))
    return arriving


def _parts(
    tables: Bound,
    step: int,
    stage: int,
    rank: int,
    rounds: int,
    arriving: dict[tuple[int, int], list[tuple[int, int]]],
) -> Iterator[_Part]:
    """What a step does, as events without their times: each transfer that it takes in, or the copy that it makes."""
    first_operand, operands = tables.steps[step, :2].tolist()
    chunk, count = tables.chunks[step].tolist()
    peers = tables.operands[first_operand : first_operand + operands, 0]
    foreign = [peer for peer in map(rank_of, peers.tolist()) if peer not in (INPUT, rank)]
    if not foreign:
        yield _COPY, stage if stage < rounds else -1, -1, chunk, count
        return
    kind = _REDUCE if operands > 1 else _RECEIVE
    for peer in foreign:
        for first, length in arriving[stage - 1, peer]:
            begin, end = max(first, chunk), min(first + length, chunk + count)
            if begin < end:
                yield kind, stage - 1, peer, begin, end - begin


def _bytes_before(layout: Layout, slice_: int, itemsize: int) -> list[int]:
    """How many bytes of a slice are in the chunks before each, and in all of them."""
    elements = np.maximum(np.minimum(layout.length, layout.limit - slice_ * layout.stride), 0)
    return [0, *(np.cumsum(elements) * itemsize).tolist()]
