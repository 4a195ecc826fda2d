"""Vector clocks: which pairs of steps are ordered by what must happen before what.

The clock of a node says, for each lane, how many of its steps have finished, for sure, when the node begins.
It is the maximum of the clocks of its predecessors, each counted with its own steps. So step s of lane l
happens before a node exactly where the node's clock has more than s at l.

Most pairs need no clock: a step that waits for the other one, or comes after one that does, is ordered by that.
Clocks are computed level by level, a level at once, and only for lanes that somebody asks about. A clock is
kept until its last successor has read it; what is alive at a time is a small part of all.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.accesses import Pairs, runs
from farandole.program import Program
from farandole.schedule import Ints
from farandole.verify.happens_before import Run, existing_waits


def unordered(program: Program, done: Run, pairs: Pairs) -> Pairs:
    """Those of ``pairs`` that some execution may run in either order, or at once. All their steps must have run."""
    pairs = pairs.select(~_are_waited_for(program, pairs))
    if not len(pairs):
        return pairs
    node, level = done.edges.node, done.level
    lane = program.step_lane
    lanes, asked = np.unique(lane[pairs.earlier], return_inverse=True)
    finished = np.arange(len(lane)) - program.lane_start[lane] + 1

    nodes, predecessors, start = _by_level(done)
    row_of = np.empty(len(node), np.int64)
    row_of[nodes] = np.arange(len(nodes))
    level_start = np.searchsorted(level[nodes], np.arange(int(level.max()) + 2))
    pair_row = row_of[node[pairs.later]]
    by_row = np.argsort(pair_row, kind="stable")
    pair_start = np.searchsorted(pair_row[by_row], level_start)
    members = np.flatnonzero((level >= 0) & np.isin(lane, lanes))
    members = members[np.argsort(row_of[node[members]], kind="stable")]
    member_start = np.searchsorted(row_of[node[members]], level_start)
    member_lane = np.searchsorted(lanes, lane[members])

    clocks = _Clocks(len(node), len(lanes), np.bincount(predecessors, minlength=len(node)))
    is_unordered = np.zeros(len(pairs), np.bool_)
    for now, (first, stop) in enumerate(pairwise(level_start)):
        clock = clocks.at_begin(predecessors, start[first : stop + 1])
        these = by_row[pair_start[now] : pair_start[now + 1]]
        seen = clock[pair_row[these] - first, asked[these]]
        is_unordered[these] = seen < finished[pairs.earlier[these]]
        mine = slice(member_start[now], member_start[now + 1])
        clock[row_of[node[members[mine]]] - first, member_lane[mine]] = finished[members[mine]]
        clocks.keep(nodes[first:stop], clock)
    return pairs.select(is_unordered)


def _are_waited_for(program: Program, pairs: Pairs) -> NDArray[np.bool_]:
    """For which pairs the later step, or one before it in its lane, waits for the earlier one, or one after that."""
    good = existing_waits(program)
    at, lane, step = (
        column[good].astype(np.int64) for column in (program.waits.at, program.waits.lane, program.waits.step)
    )
    if not len(at):
        return np.zeros(len(pairs), np.bool_)
    step_lane, size = program.step_lane, len(program.steps)
    # One row for each wait, by the lane that waits and the lane that is waited for, in the order of the steps.
    own, lanes = step_lane[at].astype(np.int64), len(program.lane_rank)
    group = own * lanes + program.first_lane[program.lane_rank[own]] + lane
    order = np.lexsort((at, group))
    key, group, step = (group * size + at)[order], group[order], step[order]
    lift = np.cumsum(np.append(False, group[1:] != group[:-1])) * size
    latest = np.maximum.accumulate(step + lift) - lift
    wanted = step_lane[pairs.later].astype(np.int64) * lanes + step_lane[pairs.earlier]
    row = np.searchsorted(key, wanted * size + pairs.later, side="right") - 1
    number = pairs.earlier - program.lane_start[step_lane[pairs.earlier]]
    return np.asarray((row >= 0) & (group[row] == wanted) & (latest[row] >= number))


def _by_level(done: Run) -> tuple[Ints, Ints, NDArray[Any]]:
    """The nodes that ran, level by level, and their predecessors: those of place i from start[i] to start[i + 1].

    Within a level, the nodes with most predecessors come first.
    """
    order, level = done.edges, done.level
    before, after = order.node[order.before], order.node[order.after]
    kept = (before != after) & (level[after] >= 0)
    before, after = before[kept], after[kept]
    count = np.bincount(after, minlength=len(level))
    nodes = np.flatnonzero((level >= 0) & (order.node == np.arange(len(level))))
    nodes = nodes[np.lexsort((-count[nodes], level[nodes]))]
    by_after = before[np.argsort(after, kind="stable")]
    after_start = np.cumsum(count) - count
    _, place = runs(after_start[nodes], count[nodes])
    return nodes.astype(np.int32), by_after[place], np.append(0, np.cumsum(count[nodes]))


class _Clocks:
    """The clocks of nodes that still have successors to come, as rows of one array that grows when it must."""

    __slots__ = ("_free", "_row", "_rows", "_users")

    def __init__(self, nodes: int, lanes: int, users: NDArray[np.int64]) -> None:
        self._rows = np.zeros((16, lanes), np.int32)
        self._free = list(range(16))
        self._row = np.full(nodes, -1, np.int64)
        self._users = users

    def at_begin(self, predecessors: Ints, start: NDArray[Any]) -> NDArray[np.int32]:
        """The clocks of nodes when they begin, from those of their predecessors, which are then used up.

        ``start`` says where the predecessors of each node begin; their number falls from node to node.
        """
        count = np.diff(start)
        clock = np.zeros((len(count), self._rows.shape[1]), np.int32)
        for k in range(int(count.max(initial=0))):
            some = int(np.searchsorted(-count, -k))
            rows = self._row[predecessors[start[:some] + k]]
            np.maximum(clock[:some], self._rows[rows], out=clock[:some])
        used = predecessors[start[0] : start[-1]]
        np.subtract.at(self._users, used, 1)
        done = np.unique(used[self._users[used] == 0])
        self._free.extend(self._row[done].tolist())
        return clock

    def keep(self, nodes: Ints, clock: NDArray[np.int32]) -> None:
        """Remember the clocks at the end of ``nodes``, of those that have successors."""
        kept = np.flatnonzero(self._users[nodes] > 0)
        while len(self._free) < len(kept):
            size = len(self._rows)
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._free.extend(range(size, 2 * size))
        rows = np.array([self._free.pop() for _ in range(len(kept))], np.int64)
        self._rows[rows] = clock[kept]
        self._row[nodes[kept]] = rows
