"""When flows that share links are through, each with max-min fair parts of them.

Flows that share no link, not even by way of others, have nothing to do with each other: they are of different
*groups*. Who shares with whom does not depend on when the flows start, so it is found once, for all rounds in which
the same flows run. Each group then has its own clock, and all groups take one step at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.simulate.fairness import TOLERANCE, Floats, Routes, max_min_rates, side_by_side, taking_turns

STEP = 1 << 12  # what one step costs by itself, in links and entries of routes that could be looked at meanwhile

Longs = NDArray[np.int64]
Indices = NDArray[np.intp]


class TooMuch(Exception):  # noqa: N818 - not an error: the sign to do without
    """The flows start and end at too many different times."""


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """The flows in ``rows`` share links: ``routes`` (shape (rows, width)) are those that two or more of them cross.

    The links are numbered anew, with ``capacity`` (shape (links + 1,), the last for 'no link'). ``limit`` (shape
    (m,)) is what each of all flows may have, ``group`` (shape (rows,)) the number of its group. ``together`` is the
    capacity of the one link that holds up all flows, where there is only one, or 0.
    """

    rows: Indices
    routes: Routes
    capacity: Floats
    limit: Floats
    group: Longs
    together: float

    def drained(self, posted: Floats, size: Floats, most: float = np.inf) -> Floats:
        """When the last byte of each flow has left, shape (m,), for flows of ``size`` bytes that start at ``posted``.

        Exact for the fluid model: rates change only when a flow starts or ends, and events at one time are one.
        Raises TooMuch rather than look at more than ``most`` links and entries of ``routes`` in all.
        """
        if self.together:
            return taking_turns(posted, size, self.together)
        through = posted + np.divide(size, self.limit, out=np.zeros(len(size)), where=size > 0)
        if len(self.rows) and self._meet(posted[self.rows], through[self.rows]):
            through[self.rows] = self._drained(posted[self.rows], size[self.rows], self.limit[self.rows], most)
        return through

    def _meet(self, posted: Floats, through: Floats) -> bool:
        """Whether two flows would be on a link at once if all ran as fast as they may alone."""
        order = np.argsort(posted, kind="stable")
        table = self.routes[order]
        entries = np.argsort(table, axis=None, kind="stable")  # link by link, and on each in the order of their starts
        link, flow = table.ravel()[entries], entries // table.shape[1]
        later = (link[1:] == link[:-1]) & (link[1:] < len(self.capacity) - 1)
        starts, ends = posted[order][flow], through[order][flow]
        return bool((later & (starts[1:] < ends[:-1])).any())

    def rates(self) -> Floats:
        """What each flow gets while all run, shape (m,)."""
        rates = self.limit.copy()
        rates[self.rows] = max_min_rates(self.routes, self.capacity, self.limit[self.rows])
        return rates

    def _drained(self, posted: Floats, size: Floats, limit: Floats, most: float) -> Floats:
        groups = int(self.group.max()) + 1
        through, left = posted.copy(), size.astype(np.float64)
        order = np.argsort(posted, kind="stable")
        starts, seen = posted[order], 0
        held = active = np.empty(0, np.intp)  # seen, but their group's clock is not there yet; and under way
        following = self._following(posted, order)
        start, now = _first(groups, self.group, posted), np.full(groups, -np.inf)
        while seen < len(order) or len(held) or len(active):
            empty = np.ones(groups, np.bool_)
            empty[self.group[active]] = False
            now = np.where(empty, start, now)
            latest = now[now < np.inf].max() * (1 + TOLERANCE)
            until = max(seen, int(np.searchsorted(starts, latest, side="right")))
            held, seen = np.concatenate([held, order[seen:until]]), until
            ready = posted[held] <= now[self.group[held]] * (1 + TOLERANCE)
            begun, held = held[ready], held[~ready]
            start[self.group[begun]] = following[begun]  # of several of a group, the last one's
            active = np.concatenate([active, begun])
            most -= self.routes[active].size + len(held) + len(self.capacity) + STEP
            if most < 0:
                raise TooMuch
            rates = max_min_rates(self.routes[active], self.capacity, limit[active])
            group = self.group[active]
            with np.errstate(invalid="ignore"):
                ends = now[group] + np.where(left[active] > 0, left[active] / rates, 0.0)
            after = np.minimum(_first(groups, group, ends), start)
            over = ends <= after[group] * (1 + TOLERANCE)
            through[active[over]] = ends[over]
            keep, staying = active[~over], group[~over]
            left[keep] -= rates[~over] * (after[staying] - now[staying])
            active, now = keep, after
        return through

    def _following(self, posted: Floats, order: Indices) -> Floats:
        """When the next flow of the same group starts, infinity for the last."""
        by_group = order[np.argsort(self.group[order], kind="stable")]
        following = np.full(len(posted), np.inf)
        same = self.group[by_group[1:]] == self.group[by_group[:-1]]
        following[by_group[:-1][same]] = posted[by_group[1:][same]]
        return following


def _first(groups: int, group: Longs, times: Floats) -> Floats:
    """The least of the times of each group, infinity where there is none."""
    first = np.full(groups, np.inf)
    np.minimum.at(first, group, times)
    return first


def sharing(routes: Routes, capacity: Floats, limit: Floats) -> Sharing:
    """Who shares what: ``routes`` has shape (m, width), ``capacity`` (links + 1,) with infinity for 'no link'.

    A link that counts several times on a route counts as so many flows there.
    """
    users = np.bincount(routes.ravel(), minlength=len(capacity))
    alone = np.where(users == 1, capacity, np.inf)[routes].min(axis=1, initial=np.inf)
    limit = np.minimum(limit, alone)
    shared = (users > 1) & np.isfinite(capacity)
    count = int(shared.sum())
    numbers = np.full(len(capacity), count, np.int32)
    numbers[shared] = np.arange(count)
    crossed = numbers[routes]
    rows = np.flatnonzero((crossed < count).any(axis=1))
    table, limited = _without_doubles(crossed[rows], np.append(capacity[shared], np.inf))
    together = 0.0
    if len(rows) == len(routes) > 1 and table.shape[1] == 1 and (table == table[0]).all():
        tightest = float(limited[table[0, 0]])
        together = tightest if limit.min() >= tightest else 0.0
    return Sharing(rows, table, limited, limit, _groups(table, len(limited)), together)


def _without_doubles(table: Routes, capacity: Floats) -> tuple[Routes, Floats]:
    """Links that the same flows cross are one, with the least of their capacities: the table and the capacities."""
    none, width = len(capacity) - 1, table.shape[1]
    order = np.argsort(table, axis=None, kind="stable")
    order = order[: int(np.searchsorted(table.ravel()[order], none))]
    link, flow = table.ravel()[order], order // max(width, 1)  # link by link, and on each in the order of the flows
    users = np.bincount(link, minlength=none)
    begin = np.cumsum(users) - users
    marks = np.random.default_rng(0).integers(0, 1 << 62, len(table), np.uint64)
    sums = np.zeros(none, np.uint64)
    np.add.at(sums, link, marks[flow])
    like = np.unique(np.stack([sums, users.astype(np.uint64)]), axis=1, return_index=True, return_inverse=True)
    first = like[1][like[2].ravel()]  # the first link with this sum, which is the same or meant to be told apart
    place = np.arange(len(link)) - begin[link]
    differs = np.bincount(link, flow[begin[first[link]] + place] != flow, none) > 0
    first = np.where(differs, np.arange(none), first)
    least = capacity.copy()
    np.minimum.at(least, first, capacity[:-1])
    kept = np.append(first == np.arange(none), False)
    return _to_the_left(np.where(kept[table], table, none).astype(np.int32), none), least


def _to_the_left(table: Routes, none: int) -> Routes:
    """Each row's links moved to the left of its gaps, and columns of gaps only left out."""
    ordered = np.sort(table, axis=1)  # 'no link' has the highest number
    return ordered[:, : int((ordered < none).sum(axis=1).max(initial=0))]


def _groups(routes: Routes, links: int) -> Longs:
    """The group of each flow, shape (m,), numbered from 0: flows that share a link are of one group."""
    least = np.arange(len(routes))
    while len(routes):
        on_link = np.full(links, len(routes))
        for link, lowest in side_by_side(routes, least):
            np.minimum.at(on_link, link, lowest)
        on_link[-1] = len(routes)
        lower = np.minimum(least, on_link[routes].min(axis=1))
        np.minimum.at(lower, least, lower.copy())  # what one of a group has found holds for the one it goes by
        lower = lower[lower]
        if np.array_equal(lower, least):
            break
        least = lower
    return np.asarray(np.unique(least, return_inverse=True)[1], np.int64)


def drain_times(
    posted: Floats, size: Floats, routes: Routes, capacity: Floats, limit: Floats, most: float = np.inf
) -> Floats:
    """When the last byte of each flow has left: see :class:`Sharing`, for flows that run once."""
    return sharing(routes, capacity, limit).drained(posted, size, most)
