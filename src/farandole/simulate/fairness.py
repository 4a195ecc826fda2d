"""Max-min fair sharing: how fast flows that share links run, and when they are through.

Every flow gets as much as it can without taking from one that has less. A flow's rate is then set by one link,
its bottleneck, on which no other flow is faster. Links are numbered; the number after the last one stands for
'no link' and has no limit, so that routes of different lengths fit one table.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

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
        for links, most in side_by_side(crossed, possible):
            np.minimum.at(slowest, links, most)
        settled = slowest >= share * (1 - TOLERANCE)
        settled[none] = False
        fixed = settled[crossed].any(axis=1) | (possible >= limit[rows])
        rates[rows[fixed]] = possible[fixed]
        for links, rate in side_by_side(crossed[fixed], possible[fixed]):
            left -= np.bincount(links, np.where(links == none, 0, rate), len(capacity))
        np.maximum(left, 0, out=left)
        rows = rows[~fixed]
    return rates


def side_by_side(routes: Routes, values: NDArray[Any]) -> Iterator[tuple[Routes, NDArray[Any]]]:
    """The links that flows cross with the flows' values (shape (m,)), in as few pieces as the table has sides."""
    if routes.shape[1] <= len(routes):
        yield from ((column, values) for column in routes.T)
    else:
        yield from ((row, np.full(len(row), value)) for row, value in zip(routes, values, strict=True))


def taking_turns(posted: Floats, size: Floats, capacity: float) -> Floats:
    """When each of the flows on one link is through, shape (m,): when the bytes due to one user reach its size.

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
