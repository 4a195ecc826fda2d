"""The fast engine: all messages of a round at once, rounds one after another, equal rounds once.

It takes for granted that messages of different rounds never share a link at the same time, and checks that at
every step: on each link, a round's messages may start only when those of earlier rounds are through. Where the
check holds throughout, the times found are a solution of the fluid model, and the fluid model has only one; so
the result is exact, with stragglers and jitter too. Where it fails, ``Overlap`` is raised and the event engine
does the work.

Equal rounds repeat: once every rank begins a round just as much later as the one before, all rounds like it
take that long, and are skipped; so are those that only move the times on along a ring (see ``jump``). That is what
makes worlds of 100,000 ranks cheap. Until then, where no two messages
of the round share a link, each link is used by one sender only, so that there is nothing to check.

On a large torus with long routes every message gets, all the way, the least of what its links could give each of
their messages; that is not exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from farandole.simulate.arcs import Arcs
from farandole.simulate.fairness import TOLERANCE, side_by_side
from farandole.simulate.jump import jump
from farandole.simulate.pattern import Floats, Network, Pattern
from farandole.simulate.settings import Settings, jitter
from farandole.simulate.sharing import TooMuch

PERIODS = (1, 8)
KEPT_BYTES = 1 << 28  # of when ranks began a stretch's rounds; what is beyond is missing in the critical path only
LOOKED_AT = 1 << 25  # links and places on routes, in one round of a large world
LOOKS = 8  # rounds from one look for a period to the next
LARGE = 1 << 14  # messages: a round of so many is looked at early, since each costs more than the look
WORTH_SKIPPING = 64  # rounds: fewer are gone through one by one, for the sake of the critical path
MANY_EACH = 64  # messages that each receiver reduces: then it goes receiver by receiver, not message by message
EPS = float(np.finfo(np.float64).eps)


class Overlap(Exception):  # noqa: N818 - not an error: the sign to use the other engine
    """Messages of different rounds would share a link, or those of one round share links in too many ways."""


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
    each of them is like the one ``period`` rounds before. Where they are not alike, ``resumed`` is when each rank
    began the first that is not kept. ``rates`` is what the messages get where all start together.
    """

    pattern: Pattern
    first: int
    repeat: int = 0
    begins: list[Floats] = field(default_factory=list)
    period: int = 1
    shift_s: float = 0.0
    resumed: Floats | None = None
    rates: Floats | None = None

    def begin(self, i: int) -> Floats:
        """When each rank began the i-th round."""
        if i < len(self.begins):
            return self.begins[i]
        if self.resumed is not None:
            return self.resumed
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
    walking = _Walk(net, begin, settings, skip, queue)
    for pattern, repeat in groups:
        walking.go(pattern, repeat)
    return walking.stretches, walking.begin


class _Walk:
    """How far a walk through the rounds has come: when each rank begins its next round, and what links are busy."""

    def __init__(self, net: Network, begin: Floats, settings: Settings, skip: bool, queue: bool) -> None:
        self.net, self.settings, self.skip, self.queue = net, settings, skip, queue
        self.begin = begin
        self.stretches: list[Stretch] = []
        self.number = 0
        self.busy = np.full(net.none + 1, -np.inf)
        self.drained: Floats | None = None  # of the last round, where ``busy`` does not know of it yet
        self.recent: deque[Floats] = deque(maxlen=max(PERIODS))

    def go(self, pattern: Pattern, repeat: int) -> None:
        """Take ``repeat`` rounds of one pattern."""
        if not self.stretches or self.stretches[-1].pattern is not pattern:
            self._settle()
            self.stretches.append(Stretch(pattern, self.number))
            self.recent.clear()
        stretch = self.stretches[-1]
        left = repeat
        while left:
            due = stretch.repeat % LOOKS == 0 or (stretch.repeat == 2 and len(pattern) >= LARGE)
            if self.skip and due and stretch.repeat and stretch.shift_s == 0.0 and left > WORTH_SKIPPING:
                stretch.period, stretch.shift_s = _period(pattern, self.recent, self.begin)
                if stretch.shift_s == 0.0 and self._jump(stretch, left):
                    return
            if stretch.shift_s and left >= stretch.period:
                left -= self._skip(stretch, left // stretch.period)
                continue
            if stretch.shift_s == 0.0:
                if not self.skip or len(stretch.begins) * self.begin.nbytes < KEPT_BYTES:
                    stretch.begins.append(self.begin)
                elif stretch.resumed is None:
                    stretch.resumed = self.begin
                self.recent.append(self.begin)
            self._round(stretch)
            left -= 1

    def _round(self, stretch: Stretch) -> None:
        """Take one round."""
        pattern = stretch.pattern
        alone = pattern.apart and pattern.one_each and stretch.repeat > 0
        busy = None if alone else self.busy
        if pattern.arcs is not None and stretch.rates is None:
            stretch.rates = _least_shares(self.net, pattern.arcs)
        elif self.queue and stretch.rates is None and not pattern.apart:
            stretch.rates = pattern.sharing(self.net).rates()
        times = step(
            self.net, pattern, self.begin, self.settings, self.number, busy, rates=stretch.rates, queue=self.queue
        )
        self.begin, self.drained = times.after, times.drained if alone else None
        self._count(stretch, 1)

    def _skip(self, stretch: Stretch, periods: int) -> int:
        """Pass over rounds that are like those before; how many they are."""
        self._settle()
        later = periods * stretch.shift_s
        self.begin = self.begin.copy()
        self.begin[stretch.pattern.involved] += later
        self.busy[stretch.pattern.links()] += later
        self._count(stretch, periods * stretch.period)
        return periods * stretch.period

    def _jump(self, stretch: Stretch, rounds: int) -> bool:
        """Take all rounds that are left in one go, if they are such that this can be done."""
        after = jump(self.net, stretch.pattern, self.begin, self.settings, rounds - 1)
        if after is None:
            return False
        if stretch.resumed is None:
            stretch.resumed = self.begin
        self.begin = after
        self._count(stretch, rounds - 1)
        self._round(stretch)
        return True

    def _count(self, stretch: Stretch, rounds: int) -> None:
        stretch.repeat += rounds
        self.number += rounds

    def _settle(self) -> None:
        """Bring ``busy`` up to date."""
        if self.drained is not None:
            _occupy(self.net, self.stretches[-1].pattern, self.busy, self.drained)
            self.drained = None


def _period(pattern: Pattern, recent: deque[Floats], begin: Floats) -> tuple[int, float]:
    """(p, t) if every rank begins t later than p rounds ago; (1, 0.0) otherwise."""
    for period in PERIODS:
        if len(recent) >= period and (period == 1 or len(recent) == recent.maxlen):
            later = begin - recent[-period]
            later = later[pattern.involved]
            if later.max() - later.min() <= 8 * EPS * begin.max() and later.max() > 0:
                return period, float(later.mean())
    return 1, 0.0


def _occupy(net: Network, pattern: Pattern, busy: Floats, drained: Floats) -> None:
    """Bring ``busy`` up to date: the links of a round's messages are through with it when these have drained."""
    if pattern.arcs is not None:
        link = pattern.arcs.link
        busy[link] = pattern.arcs.raised(busy[link], drained)
    for crossed, ends in side_by_side(pattern.routes, drained):
        if pattern.apart:
            busy[crossed] = ends
        else:
            np.maximum.at(busy, crossed, ends)
    busy[net.unshared] = -np.inf


def step(
    net: Network,
    pattern: Pattern,
    begin: Floats,
    settings: Settings,
    number: int,
    busy: Floats | None,
    *,
    queue: bool = False,
    rates: Floats | None = None,
) -> Step:
    """One round. ``busy`` is when each link is through with earlier rounds, and is brought up to date.

    With ``queue``, messages wait for those of earlier rounds; with ``rates``, this is what each gets all the time.
    """
    posted = post_times(pattern, begin, settings, number)
    if settings.rendezvous:
        posted = np.maximum(posted, begin[pattern.dst])
    if busy is not None:
        earliest = busy[pattern.routes].max(axis=1, initial=-np.inf)
        if pattern.arcs is not None:
            earliest = pattern.arcs.greatest(busy[pattern.arcs.link])
        if queue:
            posted = np.maximum(posted, earliest)
        elif pattern.arcs is not None or (earliest > posted * (1 + TOLERANCE)).any():
            raise Overlap
    if rates is None and pattern.arcs is not None:
        rates = _least_shares(net, pattern.arcs)
    if pattern.apart:
        drained = posted + pattern.size / pattern.limit
    elif rates is not None:
        drained = posted + pattern.size / rates
    else:
        most = np.inf if net.lists else LOOKED_AT
        try:
            drained = pattern.sharing(net).drained(posted, pattern.size, most)
        except TooMuch:
            raise Overlap from None
    if busy is not None:
        _occupy(net, pattern, busy, drained)
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


def _least_shares(net: Network, arcs: Arcs) -> Floats:
    """What each message gets all the way: the least of what its links could give each of their messages."""
    taken = np.maximum(arcs.users() / net.capacity[arcs.link], 1 / net.bandwidth[arcs.link])
    longest = arcs.greatest(taken)
    return np.asarray(np.divide(1.0, longest, out=np.full(len(longest), np.inf), where=longest > 0), np.float64)


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
    if len(order) > MANY_EACH * max(int((np.bincount(receiver) > 0).sum()), 1):
        for rank in np.unique(receiver):
            those = order[receiver == rank]
            costs = cost * pattern.reduced[those]
            spent = np.cumsum(costs)
            done[those] = spent + np.maximum.accumulate(ready[those] - (spent - costs))
        return done
    new = np.append(True, receiver[1:] != receiver[:-1]) if len(order) else np.empty(0, np.bool_)
    place = np.arange(len(order)) - np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    free = np.full(len(np.bincount(pattern.dst)) if len(pattern) else 0, -np.inf)
    for k in range(int(place.max(initial=-1)) + 1):
        those = order[place == k]
        finish = np.maximum(ready[those], free[pattern.dst[those]]) + cost * pattern.reduced[those]
        done[those] = free[pattern.dst[those]] = finish
    return done
