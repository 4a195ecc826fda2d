"""The fast engine: all messages of a round at once, rounds one after another, equal rounds once.

It takes for granted that messages of different rounds never share a link at the same time, and checks that at
every step: on each link, a round's messages may start only when those of earlier rounds are through. Where the
check holds throughout, the times found are a solution of the fluid model, and the fluid model has only one; so
the result is exact, with stragglers and jitter too. Where it fails, ``Overlap`` is raised and the event engine
does the work.

Equal rounds repeat: once every rank begins a round just as much later as the one before, all rounds like it
take that long, and are skipped. That is what makes worlds of 100,000 ranks cheap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from farandole.simulate.fairness import TOLERANCE, drain_times, max_min_rates
from farandole.simulate.pattern import Floats, Network, Pattern
from farandole.simulate.settings import Settings, jitter

PERIODS = (1, 8)
WORTH_SKIPPING = 64  # rounds: fewer are gone through one by one, for the sake of the critical path
EPS = float(np.finfo(np.float64).eps)


class Overlap(Exception):  # noqa: N818 - not an error: the sign to use the other engine
    """Messages of different rounds would share a link."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The times of a round, in seconds, one entry per message; ``after`` is when each rank has done it."""

    posted: Floats
    drained: Floats
    arrived: Floats
    done: Floats
    after: Floats


@dataclass(slots=True, eq=False)
class Stretch:
    """Rounds ``first`` to ``first + repeat - 1``, all of one pattern.

    ``begins[i]`` is when each rank began the i-th of them; of those that were skipped nothing is kept, and
    each of them is like the one ``period`` rounds before.
    """

    pattern: Pattern
    first: int
    repeat: int = 0
    begins: list[Floats] = field(default_factory=list)
    period: int = 1
    shift_s: float = 0.0

    def begin(self, i: int) -> Floats:
        """When each rank began the i-th round."""
        if i < len(self.begins):
            return self.begins[i]
        last = len(self.begins)
        back = -(-(i - last + 1) // self.period)
        return self.begins[i - back * self.period] + back * self.shift_s


def walk(
    net: Network,
    groups: Iterable[tuple[Pattern, int]],
    begin: Floats,
    settings: Settings,
    *,
    skip: bool = True,
    queue: bool = False,
) -> tuple[list[Stretch], Floats]:
    """Go through the rounds; returns them, and when each rank is done.

    ``groups`` are patterns with how often each comes in a row; ``begin`` is when each rank begins.
    Raises Overlap: see the module's first lines. With ``queue`` it never does: a message then waits until those
    of earlier rounds have left its links, and the messages of a round share links as if they started together;
    for worlds too large for the event engine.
    """
    busy = np.full(net.none + 1, -np.inf)
    stretches: list[Stretch] = []
    recent: deque[Floats] = deque(maxlen=max(PERIODS))
    number = 0
    for pattern, repeat in groups:
        if not stretches or stretches[-1].pattern is not pattern:
            stretches.append(Stretch(pattern, number))
            recent.clear()
        stretch = stretches[-1]
        left = repeat
        while left:
            if skip and stretch.shift_s == 0.0:
                period, shift = _period(pattern, recent, begin)
                if period and left > WORTH_SKIPPING:
                    stretch.period, stretch.shift_s = period, shift
            if stretch.shift_s:
                times = left // stretch.period
                if times:
                    begin, busy = _skip(pattern, begin, busy, times * stretch.shift_s)
                    stretch.repeat += times * stretch.period
                    number += times * stretch.period
                    left -= times * stretch.period
                    continue
            if stretch.shift_s == 0.0:
                stretch.begins.append(begin)
                recent.append(begin)
            begin = step(net, pattern, begin, settings, number, busy, queue=queue).after
            stretch.repeat += 1
            number += 1
            left -= 1
    return stretches, begin


def _period(pattern: Pattern, recent: deque[Floats], begin: Floats) -> tuple[int, float]:
    """(p, t) if every rank begins t later than p rounds ago; (0, 0.0) otherwise."""
    for period in PERIODS:
        if len(recent) >= period and (period == 1 or len(recent) == recent.maxlen):
            later = begin - recent[-period]
            later = later[pattern.involved]
            if later.max() - later.min() <= 8 * EPS * begin.max() and later.max() > 0:
                return period, float(later.mean())
    return 0, 0.0


def _skip(pattern: Pattern, begin: Floats, busy: Floats, time_s: float) -> tuple[Floats, Floats]:
    begin, busy = begin.copy(), busy.copy()
    begin[pattern.involved] += time_s
    used = np.unique(pattern.routes)
    busy[used] += time_s
    return begin, busy


def step(
    net: Network,
    pattern: Pattern,
    begin: Floats,
    settings: Settings,
    number: int,
    busy: Floats | None,
    *,
    queue: bool = False,
) -> Step:
    """One round. ``busy`` is when each link is through with earlier rounds, and is brought up to date."""
    posted = post_times(pattern, begin, settings, number)
    if busy is not None:
        earliest = busy[pattern.routes].max(axis=1, initial=-np.inf)
        if queue:
            posted = np.maximum(posted, earliest)
        elif (earliest > posted * (1 + TOLERANCE)).any():
            raise Overlap
    if pattern.apart:
        drained = posted + pattern.size / pattern.limit
    elif queue:
        drained = posted + pattern.size / max_min_rates(pattern.routes, net.capacity, pattern.limit)
    else:
        drained = drain_times(posted, pattern.size, pattern.routes, net.capacity, pattern.limit)
    if busy is not None:
        for column in pattern.routes.T:
            if pattern.apart:
                busy[column] = drained
            else:
                np.maximum.at(busy, column, drained)
        busy[~np.isfinite(net.capacity)] = -np.inf
    arrived = drained + pattern.latency_s
    done = np.maximum(arrived, begin[pattern.dst])
    cost = net.cluster.reduce_s_per_byte
    if cost:
        done = reduce_times(pattern, done, cost)
    after = begin.copy()
    if pattern.one_each:
        after[pattern.src] = np.maximum(after[pattern.src], drained)
    else:
        np.maximum.at(after, pattern.src, drained)
    if pattern.one_in_each:
        after[pattern.dst] = np.maximum(after[pattern.dst], done)
    else:
        np.maximum.at(after, pattern.dst, done)
    return Step(posted, drained, arrived, done, after)


def post_times(pattern: Pattern, begin: Floats, settings: Settings, number: int) -> Floats:
    """When each message is posted: a sender's messages one after another, each with its start-up cost."""
    startup = settings.startup_s
    if settings.jitter_s == 0.0:
        return begin[pattern.src] + (pattern.place + 1) * startup if startup else begin[pattern.src]
    cost = startup + jitter(settings, number, 0, len(pattern))
    order = np.lexsort((pattern.place, pattern.src))
    total = np.cumsum(cost[order])
    first = np.flatnonzero(pattern.place[order] == 0)
    before = (total - cost[order])[first]
    posted = np.empty(len(pattern))
    posted[order] = total - np.repeat(before, np.diff(np.append(first, len(order))))
    return begin[pattern.src] + posted


def reduce_times(pattern: Pattern, ready: Floats, cost: float) -> Floats:
    """When each message has been reduced; a rank reduces one after another, in the order in which they are ready."""
    if pattern.one_in_each:
        return ready + cost * pattern.reduced
    done = ready.copy()
    rows = np.flatnonzero(pattern.reduced > 0)
    order = rows[np.lexsort((pattern.src[rows], ready[rows], pattern.dst[rows]))]
    receiver = pattern.dst[order]
    new = np.append(True, receiver[1:] != receiver[:-1]) if len(order) else np.empty(0, np.bool_)
    place = np.arange(len(order)) - np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    free = np.full(len(np.bincount(pattern.dst)) if len(pattern) else 0, -np.inf)
    for k in range(int(place.max(initial=-1)) + 1):
        those = order[place == k]
        finish = np.maximum(ready[those], free[pattern.dst[those]]) + cost * pattern.reduced[those]
        done[those] = free[pattern.dst[those]] = finish
    return done
