"""How fast the ranks of a communicator are, from two looks at their flight recorders."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.run.flight import Flight, RankFlight


@dataclass(frozen=True, slots=True)
class Rate:
    """One rank between two looks: calls and bytes per second, and which part of the time it waited for others (0-1).

    ``sent`` is what it wrote for others to read, ``received`` what it read of theirs, also in calls that go on.
    """

    calls: float
    sent: float
    received: float
    waiting: float


def rates(before: Flight, after: Flight) -> list[Rate]:
    """A rate for each rank of a communicator; ``before`` is the earlier look at the same one."""
    took_ns = max(after.now_ns - before.now_ns, 1)
    pairs = zip(before.ranks, after.ranks, strict=True)
    return [_rate(then, before.now_ns, now, after.now_ns, took_ns / 1e9) for then, now in pairs]


def _rate(then: RankFlight, then_ns: int, now: RankFlight, now_ns: int, took_s: float) -> Rate:
    a, b = then.counters, now.counters
    waited_s = (_waited_ns(now, now_ns) - _waited_ns(then, then_ns)) / 1e9
    return Rate(
        max(0, b.calls + b.messages - a.calls - a.messages) / took_s,
        max(0, b.sent - a.sent) / took_s,
        max(0, b.received - a.received) / took_s,
        min(1.0, max(0.0, waited_s / took_s)),
    )


def _waited_ns(rank: RankFlight, now_ns: int) -> int:
    """Also the wait that goes on: it is added to the counter only when it ends."""
    going_on = 0 if rank.waits_for is None else max(0, now_ns - rank.waits_since_ns)
    return rank.counters.waiting_ns + going_on
