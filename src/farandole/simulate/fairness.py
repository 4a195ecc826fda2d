"""Max-min fair sharing: how fast flows that share links run, and when they are through.

Every flow gets as much as it can without taking from one that has less. A flow's rate is then set by one link,
its bottleneck, on which no other flow is faster. Links are numbered; the number after the last one stands for
'no link' and has no limit, so that routes of different lengths fit one table.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Routes = NDArray[np.int32]

TOLERANCE = 1e-12


def max_min_rates(routes: Routes, capacity: Floats, limit: Floats) -> Floats:
    """The rate of each flow, shape (m,).

    ``routes`` has shape (m, width), ``capacity`` (links + 1,) with infinity for 'no link', ``limit`` (m,) is
    what each flow may have at most. Links whose flows are all slowest there settle together, so that a few
    passes suffice however many flows there are.
    """
    rates = np.empty(len(routes))
    left = capacity.copy()
    rows = np.arange(len(routes))
    none = len(capacity) - 1
    while len(rows):
        crossed = routes[rows]
        users = np.bincount(crossed.ravel(), minlength=len(capacity))
        share = np.divide(left, users, out=np.full(len(capacity), np.inf), where=users > 0)
        share[none] = np.inf
        possible = np.minimum(share[crossed].min(axis=1, initial=np.inf), limit[rows])
        slowest = np.full(len(capacity), np.inf)
        for column in crossed.T:
            np.minimum.at(slowest, column, possible)
        settled = slowest >= share * (1 - TOLERANCE)
        settled[none] = False
        fixed = settled[crossed].any(axis=1) | (possible >= limit[rows])
        rates[rows[fixed]] = possible[fixed]
        for column in crossed[fixed].T:
            left -= np.bincount(column, np.where(column == none, 0, possible[fixed]), len(capacity))
        np.maximum(left, 0, out=left)
        rows = rows[~fixed]
    return rates


class TooMuch(Exception):  # noqa: N818 - not an error: the sign to do without
    """The flows start and end at too many different times."""


def drain_times(
    posted: Floats, size: Floats, routes: Routes, capacity: Floats, limit: Floats, most: float = np.inf
) -> Floats:
    """When the last byte of each flow has left, shape (m,), for flows of ``size`` bytes that start at ``posted``.

    Exact for the fluid model: rates change only when a flow starts or ends, and events at one time are one.
    Raises TooMuch rather than look at more than ``most`` links and entries of ``routes`` in all.
    """
    users = np.bincount(routes.ravel(), minlength=len(capacity))
    if len(posted) > 1 and (together := _one_bottleneck(routes, users, capacity, limit)):
        return _taking_turns(posted, size, together)
    used = np.flatnonzero(users)
    numbers = np.zeros(len(capacity), np.int32)
    numbers[used] = np.arange(len(used))
    routes, capacity = numbers[routes], capacity[used]
    if np.isfinite(capacity[-1]):  # every place of the table is a link, so 'no link' has yet to get its number
        capacity = np.append(capacity, np.inf)
    drained = posted.copy()
    left = size.astype(np.float64)
    order = np.argsort(posted, kind="stable")
    starts = posted[order]
    waiting, now = 0, 0.0
    active = np.empty(0, np.intp)
    while waiting < len(order) or len(active):
        if not len(active):
            now = starts[waiting]
        first, waiting = waiting, int(np.searchsorted(starts, now * (1 + TOLERANCE), side="right"))
        active = np.concatenate([active, order[first:waiting]])
        most -= routes[active].size + len(capacity)
        if most < 0:
            raise TooMuch
        rates = max_min_rates(routes[active], capacity, limit[active])
        with np.errstate(invalid="ignore"):
            ends = now + np.where(left[active] > 0, left[active] / rates, 0.0)
        after = min(ends.min(), starts[waiting] if waiting < len(order) else np.inf)
        over = ends <= after * (1 + TOLERANCE)
        drained[active[over]] = ends[over]
        keep = active[~over]
        left[keep] -= rates[~over] * (after - now)
        active, now = keep, after
    return drained


def _one_bottleneck(routes: Routes, users: NDArray[np.intp], capacity: Floats, limit: Floats) -> float:
    """The capacity of the one link that all flows share and that alone holds them up, or 0.0 if there is none.

    ``users`` is how many flows cross each link.
    """
    shared = np.flatnonzero((users > 1) & np.isfinite(capacity))
    if len(shared) != 1 or users[shared[0]] != len(routes) or not (routes == shared[0]).any(axis=1).all():
        return 0.0
    tightest = float(capacity[shared[0]])
    return tightest if limit.min() >= tightest else 0.0


def _taking_turns(posted: Floats, size: Floats, capacity: float) -> Floats:
    """The same for flows that share one link: each is through when the bytes due to one user reach its size.

    ``served`` is the bytes that a flow present from the beginning would have had; all who are present get the same.
    """
    drained = np.empty(len(posted))
    heap: list[tuple[float, int]] = []
    now = served = 0.0
    order = np.argsort(posted, kind="stable").tolist()
    starts, sizes = posted.tolist(), size.tolist()
    for flow in [*order, -1]:
        until = starts[flow] if flow >= 0 else np.inf
        while heap:
            goal = heap[0][0]
            end = now + (goal - served) * len(heap) / capacity
            if end > until:
                break
            now, served = end, goal
            drained[heapq.heappop(heap)[1]] = end
        if flow >= 0:
            served += (until - now) * capacity / len(heap) if heap else 0.0
            now = until
            heapq.heappush(heap, (served + sizes[flow], flow))
    return drained
