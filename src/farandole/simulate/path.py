"""The critical path: the chain of messages, start-ups and reductions that the total time is the sum of.

It is followed backwards from the last thing that happened: what was that waiting for, and what was that waiting
for? Each hop is one message of a round, or a reduction that a rank did by itself, or rounds that were skipped
because each was like the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from farandole.simulate.events import DRAINED, Timeline
from farandole.simulate.pattern import Network, Pattern
from farandole.simulate.rounds import Step, Stretch, step
from farandole.simulate.settings import Settings
from farandole.units import format_time

LONGEST = 100_000


@dataclass(frozen=True, slots=True)
class Hop:
    """One piece of the path, from ``start_s`` to ``end_s``.

    ``kind`` is ``message`` (rank to peer, over ``link``, the tightest on its way), ``send`` (the same, but what
    follows waits only for the last byte to leave), ``reduce`` (by ``rank`` alone), ``late`` (the rank began late)
    or ``repeat`` (rounds ``first`` to ``last``, each like the one before). The parts add up to the length.
    """

    kind: str
    first: int
    last: int
    rank: int
    peer: int
    link: str
    start_s: float
    end_s: float
    startup_s: float = 0.0
    transfer_s: float = 0.0
    latency_s: float = 0.0
    reduce_s: float = 0.0


def tightest(net: Network, pattern: Pattern, message: int, src: int, dst: int) -> str:
    """The name of the link that holds a message up most: the most time's worth of bytes in the round.

    ``src`` and ``dst`` are the ranks that it is between, also where others stand for them.
    """
    route = [link for link in pattern.routes[message].tolist() if link != net.none]
    if not route:
        return ""
    load = {link: float(pattern.size @ (pattern.routes == link).sum(axis=1)) / net.bandwidth[link] for link in {*route}}
    links = route if net.fold is None else net.cluster.route(src, dst)
    return net.cluster.link_name(links[int(np.argmax([load[link] for link in route]))])


def through_rounds(net: Network, stretches: Sequence[Stretch], end: np.ndarray, settings: Settings) -> list[Hop]:
    """The path through what the fast engine found; ``end`` is when each rank is done."""
    rank, now = int(np.argmax(end)), float(end.max())
    hops: list[Hop] = []
    names: dict[tuple[int, int, int], str] = {}
    home = 0  # in a folded world, how far the rank is from the one that stands for it
    for stretch in reversed(stretches):
        i = stretch.repeat - 1
        while i >= 0 and len(hops) < LONGEST:
            kept = len(stretch.begins)
            if i >= kept:
                start = float(stretch.begin(kept)[rank])
                real = (rank + home) % net.cluster.ranks
                hops.append(
                    Hop("repeat", stretch.first + kept, stretch.first + i, real, real, "", min(start, now), now)
                )
                now, i = min(start, now), kept - 1
                continue
            begin = stretch.begins[i]
            times = step(net, stretch.pattern, begin, settings, stretch.first + i, None)
            hop, rank, home, now = _before(
                net, stretch.pattern, times, begin, rank, home, now, stretch.first + i, names
            )
            hops.extend(hop)
            i -= 1
    if now > 0:
        real = (rank + home) % net.cluster.ranks
        hops.append(Hop("late", 0, 0, real, real, "", 0.0, now))
    return _parted(hops[::-1])


def _parted(hops: list[Hop]) -> list[Hop]:
    """Give the skipped rounds the same shares of start-up, transfer, ... as the rounds that they are like."""
    result: list[Hop] = []
    for hop in hops:
        alike = [other for other in result if other.last == hop.first - 1 and other.kind not in ("late", "repeat")]
        length = sum(other.end_s - other.start_s for other in alike)
        if hop.kind == "repeat" and length > 0:
            scale = (hop.end_s - hop.start_s) / length
            parts = ("startup_s", "transfer_s", "latency_s", "reduce_s")
            result.append(replace(hop, **{part: scale * sum(getattr(o, part) for o in alike) for part in parts}))
        else:
            result.append(hop)
    return result


def _before(
    net: Network, pattern: Pattern, times: Step, begin: np.ndarray, rank: int, home: int, now: float, number: int,
    names: dict[tuple[int, int, int], str],
) -> tuple[list[Hop], int, int, float]:  # fmt: skip
    """What rank's end of a round, at ``now``, waited for: the hops, and the rank and time they began with.

    ``home`` is how far the rank is from the one that stands for it, where a world is folded.
    """
    near = 1e-12 * max(now, 1e-300)
    if begin[rank] >= now - near:
        return [], rank, home, float(begin[rank])
    ranks = net.cluster.ranks
    real = (rank + home) % ranks

    def sender(message: int) -> int:
        return int(pattern.src[message]) if pattern.ahead is None else (real - int(pattern.ahead[message])) % ranks

    received = np.flatnonzero(pattern.dst == rank)
    received = received[np.argsort(times.done[received], kind="stable")]
    done = times.done[received]
    own: list[Hop] = []
    at = int(np.searchsorted(done, now - near))
    if at < len(received):
        end, last = now, int(received[at])
        while True:  # others were reduced first: follow the one before, and so on
            message = int(received[at])
            ready = max(float(times.arrived[message]), float(begin[rank]))
            reduce_s = net.cluster.reduce_s_per_byte * float(pattern.reduced[message])
            if at == 0 or now - reduce_s - ready <= near:
                break
            now -= reduce_s
            at = min(int(np.searchsorted(done, now - near)), at - 1)
        if now < end:
            own = [Hop("reduce", number, number, real, sender(last), "", now, end, reduce_s=end - now)]
        source, dst = sender(message), real
        if begin[rank] > times.arrived[message]:
            own.append(Hop("reduce", number, number, real, source, "", ready, now, reduce_s=now - ready))
            return own, rank, home, float(begin[rank])
    else:
        sent = np.flatnonzero((pattern.src == rank) & (times.drained >= now - near))
        message, source = int(sent[0]), real
        dst = int(pattern.dst[message]) if pattern.ahead is None else (real + int(pattern.ahead[message])) % ranks
    key = (id(pattern), message, source)
    if key not in names:
        names[key] = tightest(net, pattern, message, source, dst)
    stands = int(pattern.src[message])
    start = float(begin[stands])
    posted, drained, arrived = (float(t[message]) for t in (times.posted, times.drained, times.arrived))
    is_received = at < len(received)
    hop = Hop(
        "message" if is_received else "send", number, number, source, dst, names[key], start, now,
        posted - start, drained - posted,
        arrived - drained if is_received else 0.0, now - arrived if is_received else 0.0,
    )  # fmt: skip
    return [*own, hop], stands, source - stands, start


def through_events(net: Network, patterns: Sequence[Pattern], line: Timeline) -> list[Hop]:
    """The path through what the event engine found."""
    plan = line.plan
    if not plan.src:
        return []
    offset = np.concatenate([[0], np.cumsum([len(p) for p in patterns])])
    last = np.unravel_index(int(np.argmax(line.done)), line.done.shape)
    slice_, message, received, now = int(last[0]), int(last[1]), True, float(line.done[last])
    if line.drained.max() > now:
        last = np.unravel_index(int(np.argmax(line.drained)), line.drained.shape)
        slice_, message, received, now = int(last[0]), int(last[1]), False, float(line.drained[last])
    hops: list[Hop] = []
    ranks, home = net.cluster.ranks, 0  # how far the rank that waits is from the one that stands for it
    while message >= 0 and len(hops) < LONGEST:
        number = plan.round[message]
        if received:
            dst = (plan.dst[message] + home) % ranks
            src = (dst - plan.ahead[message]) % ranks
        else:
            src = (plan.src[message] + home) % ranks
            dst = (src + plan.ahead[message]) % ranks
        posted, drained, arrived = (float(t[slice_, message]) for t in (line.posted, line.drained, line.arrived))
        due = line.began[slice_][plan.dst_step[message]]
        if received and due > arrived:
            hops.append(Hop("reduce", number, number, dst, src, "", due, now, reduce_s=now - due))
            now, (message, kind) = due, line.cause[slice_][plan.dst_step[message]]
            slice_ = _slice_of(line, slice_, message, now)
            received = kind != DRAINED
            continue
        start = line.began[slice_][plan.src_step[message]]
        link = tightest(net, patterns[number], message - int(offset[number]), src, dst)
        end = arrived if received else drained
        hops.append(
            Hop(
                "message" if received else "send", number, number, src, dst, link, start, now,
                posted - start, drained - posted, arrived - drained if received else 0.0, now - end,
            )
        )  # fmt: skip
        home = src - plan.src[message]
        now, (message, kind) = start, line.cause[slice_][plan.src_step[message]]
        slice_ = _slice_of(line, slice_, message, now)
        received = kind != DRAINED
    if now > 0:
        rank = hops[-1].rank
        hops.append(Hop("late", 0, 0, rank, rank, "", 0.0, now))
    return hops[::-1]


def _slice_of(line: Timeline, slice_: int, message: int, now: float) -> int:
    """The slice whose message ended at ``now``: an earlier one where a slice waited for its turn."""
    if message < 0:
        return slice_
    gaps = np.minimum(np.abs(line.done[:, message] - now), np.abs(line.drained[:, message] - now))
    return slice_ if gaps[slice_] <= gaps.min() else int(np.argmin(gaps))


def in_words(hops: Sequence[Hop]) -> list[str]:
    """The path as sentences, with runs of hops of one kind as one."""
    runs: list[list[Hop]] = []
    for hop in hops:
        if runs and _carries_on(runs[-1], hop):
            runs[-1].append(hop)
        else:
            runs.append([hop])
    return [_sentence(run) for run in runs]


def _carries_on(run: list[Hop], hop: Hop) -> bool:
    """Whether ``hop`` is one more of the run: of the same two ranks, or on to the next rank as the run does."""
    before = run[-1]
    if before.kind != hop.kind or hop.kind in ("repeat", "late"):
        return False
    if (before.rank, before.peer) == (hop.rank, hop.peer):
        return len(run) == 1 or (run[0].rank, run[0].peer) == (hop.rank, hop.peer)
    stays = len(run) > 1 and (run[0].rank, run[0].peer) == (run[1].rank, run[1].peer)
    return before.kind == "message" and before.peer == hop.rank and not stays


def _sentence(run: list[Hop]) -> str:
    first, last = run[0], run[-1]
    took = format_time(last.end_s - first.start_s)
    begin, end = first.first + 1, last.last + 1
    rounds = f"round {begin}" if begin == end else f"rounds {begin}-{end}"
    if first.kind == "late":
        return f"rank {first.rank} begins {took} late"
    if first.kind == "repeat":
        return f"{rounds}: each like the one before, {took} in all"
    if first.kind == "reduce":
        return f"{rounds}: rank {first.rank} reduces what it has received, {took}"
    parts = {
        "start-up": sum(hop.startup_s for hop in run),
        "transfer": sum(hop.transfer_s for hop in run),
        "latency": sum(hop.latency_s for hop in run),
        "reduction": sum(hop.reduce_s for hop in run),
    }
    what = ", ".join(f"{name} {format_time(value)}" for name, value in parts.items() if value > 0)
    detail = f"{took} ({what})" if what else took
    links = {hop.link for hop in run if hop.link}
    over = f" over {first.link}" if len(links) == 1 else ""
    if len(run) == 1:
        return f"{rounds}: rank {first.rank} sends to rank {first.peer}{over}, {detail}"
    if (first.rank, first.peer) == (last.rank, last.peer):
        return f"{rounds}: rank {first.rank} waits for the way to rank {first.peer}{over} {len(run)} times, {detail}"
    through = [first.rank, *(hop.peer for hop in run)]
    shown = " > ".join(map(str, through)) if len(through) <= 6 else f"{through[0]} > {through[1]} > ... > {through[-1]}"
    return f"{rounds}: {len(run)} messages in a chain, ranks {shown}, {detail}"
