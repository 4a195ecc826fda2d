"""Lower a schedule to a program: decide in which order each rank sends and receives.

The orders:

- ``send-first``: one lane; in each round a rank first sends everything, then receives;
- ``recv-first``: one lane; first receives, then sends;
- ``even-odd``: one lane; even ranks send first, odd ranks receive first;
- ``sendrecv``: a lane that sends and a lane that receives, side by side, with the waits that the data needs.

The program keeps what the schedule means, to the bit:

- A round carries values from its beginning. Where a rank receives into a chunk before it sends it, the
  chunk is first saved in scratch and sent from there.
- Several reductions into one chunk fold in ascending order of the ranks that held them, with the rank's own
  value at its place. Folding two values is commutative, so a single lower rank goes straight into the chunk;
  several are folded in scratch first, and the result is then reduced into the chunk.

Within a round a rank sends in ascending order of the receivers and receives in ascending order of the
senders. So all ranks agree on the order of the pairs, and the order within a round never closes a circle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from farandole.accesses import conflicts
from farandole.collectives import collective
from farandole.errors import UnknownNameError
from farandole.lower.fuse import fusion, no_fusion
from farandole.lower.lanes import lanes_of_queues
from farandole.lower.messages import messages
from farandole.lower.steps import Rows, places, rows
from farandole.program import Program, Steps, Waits, data_and_scratch, places_in_place
from farandole.schedule import Ints, Schedule

__all__ = ["ORDERS", "lower"]

ORDERS = ("send-first", "recv-first", "even-odd", "sendrecv")


def lower(schedule: Schedule, order: str = "sendrecv", fuse: bool = False) -> Program:
    """The program that carries out ``schedule``, in place, in the given order.

    With ``fuse``, a receive and the send of the same chunks in the next round become one step where nothing
    else touches them (see :mod:`farandole.lower.fuse`); such a step lies in one lane with all other steps of
    its two queues. Raises UnknownNameError for an order that is not in ``ORDERS``, and ScheduleError for
    transfers that name a rank or a chunk that does not exist. Nothing else is checked: a wrong schedule
    becomes a wrong program.

    >>> from farandole.algorithms import build
    >>> program = lower(build("all_reduce", "ring", 2), "send-first")
    >>> [program.describe(i) for i in range(2)]
    ['send chunk 1 to rank 1', 'receive from rank 1 and reduce into chunk 0']
    """
    if order not in ORDERS:
        raise UnknownNameError("order", order, ORDERS)
    rank = np.arange(schedule.ranks)
    receives_first = (rank >= 0) if order == "recv-first" else (rank % 2 == 1) & (order == "even-odd")
    moved = messages(schedule)
    sent_at, received_at = places(moved, receives_first)
    if fuse:
        what = collective(schedule.collective)
        required = what.after(schedule.ranks, schedule.chunks, schedule.root)
        fused = fusion(moved, required, sent_at, received_at)
    else:
        fused = no_fusion(moved)
    side_by_side = order == "sendrecv"
    sends_in, receives_in = lanes_of_queues(moved, fused, side_by_side)
    table = rows(moved, fused, receives_first, (sent_at, received_at), (sends_in, receives_in), schedule.chunks)
    name = f"{schedule.name or schedule.collective}, {order}{', fused' if fuse else ''}"
    return _program(schedule, table, name)


def _program(schedule: Schedule, table: Rows, name: str) -> Program:
    """Put rows, which are in the order of time on each rank, into lanes, and let them wait for each other."""
    order = np.lexsort((table["lane"], table["rank"]))
    rank, lane = table["rank"][order], table["lane"][order]
    first = np.flatnonzero(np.append(True, (rank[1:] != rank[:-1]) | (lane[1:] != lane[:-1]))[: len(order)])
    inputs, outputs = places_in_place(schedule.collective, schedule.ranks, schedule.chunks, schedule.root)
    scratch = max(int((table[name] + table["count"]).max(initial=0)) for name in ("read", "write")) - schedule.chunks
    program = Program(
        collective=schedule.collective,
        ranks=schedule.ranks,
        chunks=schedule.chunks,
        spaces=data_and_scratch(schedule.chunks, max(scratch, 0)),
        steps=Steps(
            channel=np.zeros(len(order)),
            **{key: table[key][order] for key in ("op", "read", "write", "count", "receive_from", "send_to")},
        ),
        waits=Waits(),
        lane_rank=rank[first],
        lane_start=np.append(first, len(order)).astype(np.int32),
        inputs=inputs,
        outputs=outputs,
        root=schedule.root,
        name=name,
    )
    return replace(program, waits=_waits(program, order))


def _waits(program: Program, time: NDArray[np.intp]) -> Waits:
    """What each step must wait for, so that conflicting steps run in the order of ``time``.

    A step does not wait for what it, or a step before it in its lane, already waits for.
    """
    pairs = conflicts(program, time)
    own, other = program.step_lane[pairs.later], program.step_lane[pairs.earlier]
    order = np.lexsort((-pairs.earlier, pairs.later, other, own))
    own, other, later, earlier = own[order], other[order], pairs.later[order], pairs.earlier[order]
    needed = _rises(own.astype(np.int64) * len(program.lane_rank) + other, earlier)
    other, later, earlier = other[needed], later[needed], earlier[needed]
    return Waits(later, other - program.first_lane[program.step_rank[later]], earlier - program.lane_start[other])


def _rises(group: NDArray[np.int64], values: Ints) -> NDArray[np.bool_]:
    """Which values are greater than all before them in their group; groups ascend, values are not negative."""
    if not len(values):
        return np.empty(0, np.bool_)
    lift = np.cumsum(np.append(False, group[1:] != group[:-1])) * (int(values.max()) + 1)
    lifted = values + lift
    return np.append(True, lifted[1:] > np.maximum.accumulate(lifted)[:-1])
