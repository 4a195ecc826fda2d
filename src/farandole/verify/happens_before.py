"""What must happen before what in a program, and whether it all can happen.

One step happens before another along four kinds of edges:

- *lane*: a step, and the next one in its lane;
- *wait*: a step, and one that waits for it;
- *message*: the k-th send into a queue, and the k-th receive from it;
- *slot*: the k-th receive from a queue, and the (k+d)-th send into it, which needs the slot that becomes free;
  only where the queues have a finite depth d.

At depth 0 a send and its receive complete together: they are one *node*, and so is a whole chain of fused
steps. Elsewhere a node is one step.

Nothing polls and nothing chooses: which steps must have finished before a step can go on is the same in every
execution. So all executions run the same steps, each step sees its message, and what is stuck is stuck in all of
them: the nodes on circles of edges, and whatever comes after those. One greedy run finds them. Here it goes level by
level: in each, all nodes run whose predecessors have.

Greater depths are never worse. A queue has one writer and one reader, so an edge of depth d + 1, from receive
k to send k + d + 1, is implied by receive k, receive k + 1 (the next in its lane), and the edge of depth d
from there. And if nothing is stuck at depth 0, running the nodes in the order found there, each from its
first send to its last receive, is a run at depth 1: a send finds its queue empty, for the one before it
belongs to an earlier node. So the safe depths are those from a smallest one on, and bisection finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from farandole.accesses import runs
from farandole.program import RECEIVES, SENDS, Program
from farandole.schedule import Ints
from farandole.verify.traffic import Traffic


class Kind(IntEnum):
    """The kinds of edges, in the order in which a wait is explained."""

    LANE = 0
    WAIT = 1
    MESSAGE = 2
    SLOT = 3


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """What must happen before what, for queues of one depth (None: endless), by step index.

    ``before`` must have finished for ``after`` to begin, because of ``kind``. ``never`` marks steps that wait
    for what no step does. ``node`` is a number that the steps of one node share, ``place`` a step's place in
    its chain.
    """

    depth: int | None
    before: Ints
    after: Ints
    kind: Ints
    never: NDArray[np.bool_]
    node: Ints
    place: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One greedy run: the level in which each step ran, and -1 for steps that never do.

    ``turn`` numbers the steps such that each comes after all that happen before it, with equal numbers for
    steps that no edge orders; -1 for those that never run.
    """

    edges: Edges
    level: Ints
    turn: Ints

    @property
    def is_complete(self) -> bool:
        """Whether every step ran: there is no deadlock."""
        return not (self.level < 0).any()


def edges(program: Program, traffic: Traffic, depth: int | None) -> Edges:
    """All edges of ``program`` with queues of that depth; waits for steps that do not exist are left out."""
    size = len(program.steps)
    step = np.arange(size, dtype=np.int32)
    next_in_lane = np.flatnonzero(np.diff(program.step_lane) == 0).astype(np.int32)
    parts = {Kind.LANE: (next_in_lane, next_in_lane + 1), Kind.WAIT: _waits(program)}
    never = RECEIVES[program.steps.op] & (traffic.sender_of < 0)
    node, place = step, np.zeros(size, np.int32)
    if depth == 0:
        node, place, circular = _chains(traffic.sender_of)
        never = never | circular | (SENDS[program.steps.op] & (traffic.receiver_of < 0))
    else:
        received = np.flatnonzero(traffic.sender_of >= 0).astype(np.int32)
        parts[Kind.MESSAGE] = (traffic.sender_of[received], received)
    if depth:
        parts[Kind.SLOT], stuck = _slots(traffic, depth)
        never = never.copy()
        never[stuck] = True
    return Edges(
        depth,
        np.concatenate([before for before, _ in parts.values()]),
        np.concatenate([after for _, after in parts.values()]),
        np.concatenate([np.full(len(before), kind, np.int32) for kind, (before, _) in parts.items()]),
        never,
        node,
        place,
    )


def existing_waits(program: Program) -> NDArray[np.bool_]:
    """Which of the waits are for a step that exists."""
    waits, first_lane = program.waits, program.first_lane
    rank = program.step_rank[waits.at]
    lane = first_lane[rank] + waits.lane
    good = (waits.lane >= 0) & (lane < first_lane[rank + 1])
    steps = np.diff(program.lane_start)[np.where(good, lane, 0)] if len(waits) else waits.step
    return np.asarray(good & (waits.step >= 0) & (waits.step < steps))


def _waits(program: Program) -> tuple[Ints, Ints]:
    good = existing_waits(program)
    at, lane, step = (column[good] for column in (program.waits.at, program.waits.lane, program.waits.step))
    return program.lane_start[program.first_lane[program.step_rank[at]] + lane] + step, at


def _slots(traffic: Traffic, depth: int) -> tuple[tuple[Ints, Ints], Ints]:
    """The edges from receive k to send k + depth of each queue, and the sends whose slot never becomes free."""
    count = np.diff(traffic.send_start)
    queue, number = runs(np.full(len(count), depth), np.maximum(count - depth, 0))
    sends = traffic.sends[traffic.send_start[queue] + number]
    freed = number - depth < np.diff(traffic.receive_start)[queue]
    receives = traffic.receives[(traffic.receive_start[queue] + number - depth)[freed]]
    return (receives, sends[freed]), sends[~freed]


def _chains(sender_of: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """For each step the first of its chain of messages, its place in it, and whether the chain has no beginning.

    Every turn doubles the distance that is looked back.
    """
    has_sender = sender_of >= 0
    back = np.where(has_sender, sender_of, np.arange(len(sender_of), dtype=np.int32))
    place = has_sender.astype(np.int32)
    for _ in range(len(sender_of).bit_length()):
        if not has_sender[back].any():
            break
        place = place + place[back]
        back = back[back]
    return back, place, has_sender[back]


def run(order: Edges) -> Run:
    """Run all that can run, level by level."""
    node, size = order.node, len(order.node)
    apart = node[order.before] != node[order.after]
    before, after = node[order.before[apart]], node[order.after[apart]]
    missing = np.bincount(after, minlength=size)
    # What waits for itself, or for another step of its own node, waits for ever.
    np.add.at(missing, node[order.after[~apart]], 1)
    np.add.at(missing, node[order.never], 1)
    after = after[np.argsort(before, kind="stable")]
    start = np.append(0, np.cumsum(np.bincount(before, minlength=size)))
    level = np.full(size, -1, np.int32)
    ready = np.flatnonzero((missing == 0) & (node == np.arange(size)))
    now = 0
    while len(ready):
        level[ready] = now
        _, successors = runs(start[ready], start[ready + 1] - start[ready])
        freed = after[successors]
        np.subtract.at(missing, freed, 1)
        ready = np.unique(freed[missing[freed] == 0])
        now += 1
    level = level[node]
    _, turn = np.unique(level.astype(np.int64) * (size + 1) + order.place, return_inverse=True)
    return Run(order, level, np.where(level < 0, -1, turn).astype(np.int32))


def smallest_safe_depth_of(program: Program, messages: Traffic) -> int | None:
    """The least queue depth at which nothing is stuck; None where no depth is safe."""

    def is_safe(depth: int | None) -> bool:
        return run(edges(program, messages, depth)).is_complete

    if is_safe(0):
        return 0
    if not is_safe(None):
        return None
    # Small depths are the likely ones, so gallop first. With a slot for every message nothing ever blocks.
    unsafe, safe = 0, 1
    while safe < messages.most_messages and not is_safe(safe):
        unsafe, safe = safe, 2 * safe
    while safe - unsafe > 1:
        middle = (unsafe + safe) // 2
        unsafe, safe = (unsafe, middle) if is_safe(middle) else (middle, safe)
    return safe
