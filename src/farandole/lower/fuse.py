"""Fusing: a receive, and the send of the same chunks in the next round, become one step.

Where it is right:

- the message that arrives is the only write to its chunks in its round, and the message that leaves, the
  only read of them in the next round, carries just the same chunks;
- the send moves forward to the place of the receive, and the messages of its queue must stay in order.

What arrives is always kept where it is a copy. The result of a reduction is kept only where the rank still
needs it: not if the next thing that happens to each of its chunks is a copy over it, or nothing at all and
the collective does not ask this rank for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.accesses import runs
from farandole.lower.messages import Messages
from farandole.schedule import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """For each message: the message that is sent in the step that receives it (-1: none), and back.

    ``onward`` and ``comes_from`` are inverse to each other; ``keeps`` says whether the step writes what arrives.
    """

    onward: Ints
    comes_from: Ints
    keeps: NDArray[np.bool_]


def no_fusion(messages: Messages) -> Fusion:
    """Every message is received and sent by steps of its own."""
    nothing = np.full(len(messages), -1, np.int32)
    return Fusion(nothing, nothing, np.ones(len(messages), np.bool_))


def fusion(messages: Messages, required: NDArray[np.bool_], sent_at: Ints, received_at: Ints) -> Fusion:
    """Fuse all that can be fused.

    ``required`` says which chunks each rank must have at the end, shape (ranks, chunks); ``sent_at`` and
    ``received_at`` are the places of each message's two steps in the order of the ranks that carry them out.
    """
    onward, needed = _candidates(messages, required)
    comes_from = np.full(len(messages), -1, np.int32)
    rows = np.flatnonzero(onward >= 0)
    comes_from[onward[rows]] = rows
    _keep_queues_in_order(messages, comes_from, sent_at, received_at)
    onward = np.full(len(messages), -1, np.int32)
    sent = np.flatnonzero(comes_from >= 0)
    onward[comes_from[sent]] = sent
    return Fusion(onward, comes_from, needed | ~messages.reduce | (onward < 0))


def _candidates(messages: Messages, required: NDArray[np.bool_]) -> tuple[Ints, NDArray[np.bool_]]:
    """For each message, the one it could be fused with (-1: none), and whether what arrives is needed later."""
    if not len(messages):
        return np.empty(0, np.int32), np.empty(0, np.bool_)
    chunks = required.shape[1]
    message, chunk = runs(messages.chunk, messages.count)
    size = len(message)
    # What happens to each cell, in order: in a round the reads come first, since they see its beginning.
    round_ = messages.round[message].astype(np.int64)
    time = np.concatenate([2 * round_, 2 * round_ + 1])
    cell = np.concatenate([messages.src[message], messages.dst[message]]).astype(np.int64) * chunks
    cell += np.concatenate([chunk, chunk])
    order = np.lexsort((time, cell))
    place = np.empty(2 * size, np.int64)
    place[order] = np.arange(2 * size)
    copies_over = np.concatenate([np.zeros(size, np.bool_), ~messages.reduce[message]])[order]
    # Two more entries at the end, of no cell, spare us all questions about the last one; [-1] is one of them.
    time, cell = np.append(time[order], [-1, -1]), np.append(cell[order], [-1, -1])
    copies_over = np.append(copies_over, [False, False])
    moved = np.append(np.concatenate([message, message])[order], [-1, -1])

    arrives = place[size:]
    here, now = cell[arrives], time[arrives]
    written_twice = (cell[arrives - 1] == here) & (time[arrives - 1] == now)
    read_next = (cell[arrives + 1] == here) & (time[arrives + 1] == now + 1)
    goes_on = cell[arrives + 2] == here
    read_twice = goes_on & (time[arrives + 2] == now + 1)
    onward = np.where(~written_twice & read_next & ~read_twice, moved[arrives + 1], -1)
    needed = np.where(goes_on, ~copies_over[arrives + 2], required.ravel()[here])

    first = np.cumsum(messages.count) - messages.count
    one = np.minimum.reduceat(onward, first)
    fits = (one >= 0) & (one == np.maximum.reduceat(onward, first))
    fits &= (messages.chunk[one] == messages.chunk) & (messages.count[one] == messages.count)
    return np.where(fits, one, -1).astype(np.int32), np.logical_or.reduceat(needed, first)


def _keep_queues_in_order(messages: Messages, comes_from: Ints, sent_at: Ints, received_at: Ints) -> None:
    """Undo, in place, what would let a message overtake another one in its queue.

    Fusing only ever moves a send forward, so the one to blame is always a fused one. Undoing it may leave a
    fused one behind it too early, hence the loop; each turn undoes at least one.
    """
    order = np.lexsort((sent_at, messages.dst, messages.src))
    src, dst = messages.src[order], messages.dst[order]
    queue = np.cumsum(np.append(False, (src[1:] != src[:-1]) | (dst[1:] != dst[:-1]))) if len(order) else order
    lift = queue * (2 * len(order) + 1)
    while True:
        place = np.where(comes_from >= 0, received_at[comes_from], sent_at)[order] + lift
        late = order[place < np.maximum.accumulate(place)]
        if not len(late):
            return
        comes_from[late] = -1
