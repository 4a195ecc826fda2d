"""The event engine: one message at a time, for everything that the fast engine cannot do.

A rank works through its *steps*: the rounds in which it has a part, once for each slice. The events are: a
message is posted, it has drained (its last byte has left), it has arrived, it has been reduced. Events at one
time are handled together, and only then are the rates of those flows found anew whose links changed hands.
Ties are broken by (time, kind, rank, number), so that a run is repeatable to the last bit.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from farandole.simulate.fairness import TOLERANCE, max_min_rates
from farandole.simulate.pattern import Floats, Network, Pattern
from farandole.simulate.settings import Settings, jitter

DRAINED, REDUCED, ARRIVED, READY, POSTED = range(5)
SMALL = 48  # flows: below that, plain Python is faster than arrays


@dataclass(slots=True, eq=False)
class Timeline:
    """What happened when, message by message; all arrays have shape (slices, messages), in seconds.

    ``began`` is when the sender's step began, ``due`` when the receiver's did. ``cause`` says what the sender's
    step had waited for, as ``(message, kind)``, by (slice, step); the steps are those of ``Plan``.
    """

    posted: Floats
    drained: Floats
    arrived: Floats
    done: Floats
    began: list[list[float]]
    cause: list[list[tuple[int, int]]]
    plan: Plan


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """All messages of all rounds, and the steps of the ranks.

    Step ``i`` belongs to ``step_rank[i]``; a rank's steps are numbered in order, the first is ``first[rank]``.
    ``src_step`` and ``dst_step`` are the steps in which a message is sent and received. In a folded world ``dst``
    stands for the receiver, which is ``ahead`` places on; ``pair`` tells the two apart from other pairs.
    """

    src: list[int]
    dst: list[int]
    ahead: list[int]
    pair: list[tuple[int, int]]
    round: list[int]
    routes: list[tuple[int, ...]]
    latency: list[float]
    limit: list[float]
    src_step: list[int]
    dst_step: list[int]
    step_rank: list[int]
    step_round: list[int]
    first: list[int]
    sends: list[list[int]]
    parts: list[int]


def plan(net: Network, patterns: Sequence[Pattern]) -> Plan:
    """Number the messages and the steps; ``patterns`` has one entry per round."""
    ranks, rounds = net.ranks, max(len(patterns), 1)
    number = np.repeat(np.arange(len(patterns)), [len(p) for p in patterns])

    def column(name: str, dtype: type) -> NDArray[np.generic]:
        return np.concatenate([getattr(p, name) for p in patterns]) if patterns else np.empty(0, dtype)

    src, dst, place = (column(name, np.int64).astype(np.int64) for name in ("src", "dst", "place"))
    keys, inverse = np.unique(np.concatenate([src * rounds + number, dst * rounds + number]), return_inverse=True)
    src_step, dst_step = inverse[: len(src)], inverse[len(src) :]
    sends: list[list[int]] = [[] for _ in keys]
    for message in np.lexsort((place, src_step)).tolist():
        sends[src_step[message]].append(message)
    ahead = dst - src if net.fold is None else column("ahead", np.int64).astype(np.int64)
    routes = [tuple(link for link in row if link != net.none) for p in patterns for row in p.routes.tolist()]
    limit = column("limit", np.float64).tolist()
    if net.fold is not None:  # a link that counts several times gives a message alone that part of it
        limit = [
            min([most, *(float(net.capacity[link]) / times for link, times in Counter(route).items() if times > 1)])
            for most, route in zip(limit, routes, strict=True)
        ]
    return Plan(
        src=src.tolist(),
        dst=dst.tolist(),
        ahead=ahead.tolist(),
        pair=list(zip(src.tolist(), ahead.tolist(), strict=True)),
        round=number.tolist(),
        routes=routes,
        latency=column("latency_s", np.float64).tolist(),
        limit=limit,
        src_step=src_step.tolist(),
        dst_step=dst_step.tolist(),
        step_rank=(keys // rounds).tolist(),
        step_round=(keys % rounds).tolist(),
        first=np.searchsorted(keys, np.arange(ranks + 1) * rounds).tolist(),
        sends=sends,
        parts=(np.bincount(src_step, minlength=len(keys)) + np.bincount(dst_step, minlength=len(keys))).tolist(),
    )


@dataclass(slots=True, eq=False)
class _Flows:
    """The flows under way, and who is on which link. A flow is known by its number, slice * messages + message."""

    net: Network
    capacity: list[float]
    on_link: dict[int, dict[int, None]] = field(default_factory=dict)
    routes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    limit: dict[int, float] = field(default_factory=dict)
    left: dict[int, float] = field(default_factory=dict)
    rate: dict[int, float] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)
    version: dict[int, int] = field(default_factory=dict)
    changed: dict[int, None] = field(default_factory=dict)

    def add(self, flow: int, size: float, route: tuple[int, ...], limit: float, now: float) -> None:
        shared = tuple(link for link in route if self.capacity[link] != np.inf)
        self.routes[flow], self.limit[flow], self.left[flow] = shared, limit, size
        self.rate[flow], self.since[flow], self.version[flow] = 0.0, now, 0
        self.changed[flow] = None
        for link in shared:
            self.on_link.setdefault(link, {})[flow] = None

    def remove(self, flow: int) -> None:
        for link in dict.fromkeys(self.routes[flow]):  # on a folded world's link a flow may count several times
            users = self.on_link[link]
            del users[flow]
            self.changed.update(users)
        self.changed.pop(flow, None)
        for table in (self.routes, self.limit, self.left, self.rate, self.since, self.version):
            del table[flow]

    def settle(self, now: float) -> list[tuple[float, int, int]]:
        """Find the rates anew where something changed; returns (end, flow, version) of flows with a new end."""
        ends: list[tuple[float, int, int]] = []
        while self.changed:
            group = self._neighbours(next(iter(self.changed)))
            for flow in group:
                self.changed.pop(flow, None)
            for flow, rate in zip(group, self._rates(group), strict=True):
                if rate == self.rate[flow]:
                    continue
                self.left[flow] = max(0.0, self.left[flow] - self.rate[flow] * (now - self.since[flow]))
                self.rate[flow], self.since[flow] = rate, now
                self.version[flow] += 1
                ends.append((now + self.left[flow] / rate, flow, self.version[flow]))
        return ends

    def _neighbours(self, flow: int) -> list[int]:
        """The flows that share links with ``flow``, with those, and so on."""
        seen = {flow: None}
        todo = [flow]
        links: set[int] = set()
        while todo:
            for link in self.routes[todo.pop()]:
                if link not in links:
                    links.add(link)
                    new = [other for other in self.on_link[link] if other not in seen]
                    seen.update(dict.fromkeys(new))
                    todo.extend(new)
        return list(seen)

    def _rates(self, group: list[int]) -> list[float]:
        if len(group) == 1:
            return [self.limit[group[0]]]
        if len(group) < SMALL:
            return self._few_rates(group)
        width = max(len(self.routes[flow]) for flow in group)
        none = self.net.none
        table = np.array([self.routes[flow] + (none,) * (width - len(self.routes[flow])) for flow in group])
        used, numbers = np.unique(np.append(table, none), return_inverse=True)
        limit = np.array([self.limit[flow] for flow in group])
        routes = numbers[:-1].reshape(table.shape).astype(np.int32)
        return [float(rate) for rate in max_min_rates(routes, self.net.capacity[used], limit)]

    def _few_rates(self, group: list[int]) -> list[float]:
        """Progressive filling: the link with the least to give settles its flows, again and again."""
        left = {link: self.capacity[link] for flow in group for link in self.routes[flow]}
        users = dict.fromkeys(left, 0)
        for flow in group:
            for link in self.routes[flow]:
                users[link] += 1
        rates: dict[int, float] = {}
        unsettled = dict.fromkeys(group)
        while unsettled:
            shares = [left[link] / count for link, count in users.items() if count]
            least = min([*shares, *(self.limit[flow] for flow in unsettled)])
            top = least * (1 + TOLERANCE)
            full = {link for link, count in users.items() if count and left[link] / count <= top}
            for flow in list(unsettled):
                if self.limit[flow] <= top or not full.isdisjoint(self.routes[flow]):
                    rates[flow] = least
                    del unsettled[flow]
                    for link in self.routes[flow]:
                        left[link] = max(0.0, left[link] - least)
                        users[link] -= 1
        return [rates[flow] for flow in group]


def run(net: Network, patterns: Sequence[Pattern], sizes: Floats, reduced: Floats, settings: Settings) -> Timeline:
    """Simulate; ``sizes`` and ``reduced`` are bytes, shape (slices, messages), ``patterns`` one entry per round."""
    return _Run(net, patterns, sizes, reduced, settings).finish()


class _Run:
    """The state of one simulation."""

    def __init__(
        self, net: Network, patterns: Sequence[Pattern], sizes: Floats, reduced: Floats, settings: Settings
    ) -> None:
        self.plan = plan(net, patterns)
        self.settings = settings
        self.count = len(self.plan.src)
        slices, steps, ranks = settings.slices, len(self.plan.step_rank), net.ranks
        self.sizes, self.reduced = sizes.tolist(), reduced.tolist()
        self.cost = net.cluster.reduce_s_per_byte
        self.startup = self._startup(patterns)
        self.flows = _Flows(net, net.capacity.tolist())
        self.heap: list[tuple[float, int, int, int, int]] = []
        shape = (slices, self.count)
        self.posted, self.drained, self.arrived, self.done = (np.zeros(shape) for _ in range(4))
        self.began = [[-1.0] * steps for _ in range(slices)]
        self.cause = [[(-1, -1)] * steps for _ in range(slices)]
        self.parts = [list(self.plan.parts) for _ in range(slices)]
        self.early: list[dict[int, list[int]]] = [{} for _ in range(slices)]
        self.awaited: list[dict[int, list[int]]] = [{} for _ in range(slices)]  # posted, but the receiver is not there
        self.pairs: dict[tuple[int, int], deque[int]] = {}
        self.poster_free, self.reducer_free = [0.0] * ranks, [0.0] * ranks
        self.start = settings.begin(ranks).tolist()
        self.next_slice = [0] * ranks
        for rank in range(ranks):
            for _ in range(min(slices, settings.in_flight or slices)):
                self._next_slice(rank, self.start[rank], (-1, -1))

    def _startup(self, patterns: Sequence[Pattern]) -> list[list[float]]:
        settings = self.settings
        if settings.jitter_s == 0.0:
            return [[settings.startup_s] * self.count] * settings.slices
        return [
            [
                settings.startup_s + extra
                for number, pattern in enumerate(patterns)
                for extra in jitter(settings, number, slice_, len(pattern)).tolist()
            ]
            for slice_ in range(settings.slices)
        ]

    def finish(self) -> Timeline:
        heap, flows = self.heap, self.flows
        while heap:
            now = heap[0][0]
            limit = now * (1 + TOLERANCE)
            while heap and heap[0][0] <= limit:
                self._handle(heapq.heappop(heap))
            for end, flow, version in flows.settle(now):
                heapq.heappush(heap, (max(end, now), DRAINED, self.plan.src[flow % self.count], flow, version))
        return Timeline(self.posted, self.drained, self.arrived, self.done, self.began, self.cause, self.plan)

    def _handle(self, event: tuple[float, int, int, int, int]) -> None:
        now, kind, rank, flow, version = event
        slice_, message = divmod(flow, self.count)
        plan = self.plan
        if kind == DRAINED:
            if version >= 0:
                if self.flows.version.get(flow) != version:
                    return  # an end that a change of rate has overtaken
                self.flows.remove(flow)
            self.drained[slice_, message] = now
            self._next_of_pair(message, now)
            self._push(now + plan.latency[message], ARRIVED, plan.dst[message], flow)
            self._part_done(slice_, plan.src_step[message], now, (message, DRAINED))
        elif kind == ARRIVED:
            self.arrived[slice_, message] = now
            step = plan.dst_step[message]
            if self.began[slice_][step] >= 0:
                self._push(max(now, self.began[slice_][step]), READY, rank, flow)  # a late rank has yet to begin
            else:
                self.early[slice_].setdefault(step, []).append(flow)
        elif kind == READY:
            cost = self.cost * self.reduced[slice_][message]
            if cost:
                self.reducer_free[rank] = max(now, self.reducer_free[rank]) + cost
                self._push(self.reducer_free[rank], REDUCED, rank, flow)
            else:
                self._received(slice_, message, now)
        elif kind == REDUCED:
            self._received(slice_, message, now)
        elif self.settings.rendezvous and self.began[slice_][plan.dst_step[message]] < 0:
            self.awaited[slice_].setdefault(plan.dst_step[message], []).append(flow)
        elif self.settings.rendezvous and self.began[slice_][plan.dst_step[message]] > now:
            self._push(self.began[slice_][plan.dst_step[message]], POSTED, rank, flow)  # the receiver begins late
        else:
            self.posted[slice_, message] = now
            line = self.pairs.setdefault(plan.pair[message], deque())
            line.append(flow)
            if len(line) == 1:
                self._start(flow, now)

    def _start(self, flow: int, now: float) -> None:
        """A message sets out: as a flow, if it has bytes and links to cross."""
        slice_, message = divmod(flow, self.count)
        size, limit = self.sizes[slice_][message], self.plan.limit[message]
        if size and limit != np.inf:
            self.flows.add(flow, size, self.plan.routes[message], limit, now)
        else:
            self._push(now, DRAINED, self.plan.src[message], flow, -1)

    def _next_of_pair(self, message: int, now: float) -> None:
        """Messages between the same two ranks go one after another, so that slices do not hold each other up."""
        line = self.pairs[self.plan.pair[message]]
        line.popleft()
        if line:
            self._start(line[0], now)

    def _push(self, time_s: float, kind: int, rank: int, flow: int, version: int = 0) -> None:
        heapq.heappush(self.heap, (time_s, kind, rank, flow, version))

    def _received(self, slice_: int, message: int, now: float) -> None:
        self.done[slice_, message] = now
        self._part_done(slice_, self.plan.dst_step[message], now, (message, REDUCED))

    def _part_done(self, slice_: int, step: int, now: float, cause: tuple[int, int]) -> None:
        self.parts[slice_][step] -= 1
        if self.parts[slice_][step]:
            return
        rank = self.plan.step_rank[step]
        if step + 1 < self.plan.first[rank + 1]:
            self._begin(slice_, step + 1, now, cause)
        else:
            self._next_slice(rank, now, cause)

    def _next_slice(self, rank: int, now: float, cause: tuple[int, int]) -> None:
        slice_ = self.next_slice[rank]
        step = self.plan.first[rank]
        if slice_ < self.settings.slices and step < self.plan.first[rank + 1]:
            self.next_slice[rank] += 1
            self._begin(slice_, step, now, cause)

    def _begin(self, slice_: int, step: int, now: float, cause: tuple[int, int]) -> None:
        rank = self.plan.step_rank[step]
        self.began[slice_][step] = now
        self.cause[slice_][step] = cause
        base = slice_ * self.count
        free = max(now, self.poster_free[rank])
        for message in self.plan.sends[step]:
            free += self.startup[slice_][message]
            self._push(free, POSTED, rank, base + message)
        self.poster_free[rank] = free
        for flow in self.early[slice_].pop(step, ()):
            self._push(now, READY, rank, flow)
        for flow in self.awaited[slice_].pop(step, ()):
            self._push(now, POSTED, self.plan.src[flow % self.count], flow)
