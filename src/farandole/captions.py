"""One sentence for each round of a schedule: what moves, and what that brings.

The sentences are made from the transfers alone, never from an algorithm's name, so that they are right for
any schedule, also a broken one:

    Reduce-scatter, round 2 of 7: every rank sends one chunk to the right; rank 0 now holds 3 of 8
    contributions of chunk 6.

What moves is told by the first pattern that fits; what it brings, by one rank as an example: the one that
has come furthest, and the lowest of those. 'Complete' is what a rank must have at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from farandole.collectives import collective
from farandole.schedule import Ints, Round, Schedule
from farandole.units import counted
from farandole.verify import contributions_after, states
from farandole.verify.schedule import Bits


def captions(schedule: Schedule) -> list[str]:
    """A sentence for each round.

    >>> from farandole.algorithms import build
    >>> captions(build("all_reduce", "naive", 2))
    ['Round 1 of 1: the two ranks exchange one chunk; every rank is done.']
    """
    held = states(schedule)
    progress = _Progress(schedule, next(held))
    return [
        f"{heading}: {_movement(schedule, round_)}; {progress.news(round_, state)}."
        for heading, round_, state in zip(_headings(schedule), schedule.rounds, held, strict=True)
    ]


def _headings(schedule: Schedule) -> Iterator[str]:
    """'Reduce-scatter, round 2 of 7': rounds are numbered within their phase, which follow each other."""
    for phase, group in groupby(round_.phase for round_ in schedule.rounds):
        size = len(list(group))
        for number in range(1, size + 1):
            where = f"ound {number} of {size}"
            if not phase:
                yield f"R{where}"
            else:
                yield phase[0].upper() + phase[1:].replace(": ", ", ") + (f", r{where}" if size > 1 else "")


def arrivals(schedule: Schedule, round_: Round) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """What the round writes, as far as it exists: the ranks, and the chunks at them."""
    inside = _inside(schedule, round_)
    count = round_.count[inside]
    rank = np.repeat(round_.dst[inside], count)
    chunk = np.arange(len(rank)) - np.repeat(np.cumsum(count) - count - round_.chunk[inside], count)
    return rank.astype(np.intp), chunk.astype(np.intp)


def _inside(schedule: Schedule, round_: Round) -> NDArray[np.intp]:
    """The transfers between ranks and of chunks that exist."""
    ends = np.stack([round_.src, round_.dst])
    last = round_.chunk.astype(np.int64) + round_.count
    exists = ((ends >= 0) & (ends < schedule.ranks)).all(axis=0)
    return np.flatnonzero(exists & (round_.chunk >= 0) & (round_.count > 0) & (last <= schedule.chunks))


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Who sends to whom in one round: each (src, dst) once, ascending, and the chunks it carries in all."""

    ranks: int
    src: Ints
    dst: Ints
    chunks: Ints

    @property
    def what(self) -> str:
        least, most = int(self.chunks.min()), int(self.chunks.max())
        if least != most:
            return f"{least} to {most} chunks"
        return "one chunk" if most == 1 else f"{most} chunks"


def _movement(schedule: Schedule, round_: Round) -> str:
    inside = _inside(schedule, round_)
    pair, index = np.unique(round_.src[inside] * np.int64(schedule.ranks) + round_.dst[inside], return_inverse=True)
    src, dst = np.divmod(pair, schedule.ranks)
    chunks = np.bincount(index, round_.count[inside], len(pair)).astype(np.int64)
    pairs = _Pairs(schedule.ranks, src.astype(np.int32), dst.astype(np.int32), chunks.astype(np.int32))
    strays = len(round_) - len(inside)
    notes = f", and {counted(strays, 'transfer')} outside the world" if strays else ""
    if not len(pair):
        return f"nothing moves{notes}"
    patterns = (_one_end, _exchange, _everyone, _shift, _cycles, _side_by_side)
    return next(text for pattern in patterns if (text := pattern(pairs))) + notes


def _one_end(pairs: _Pairs) -> str:
    """One rank sends, or one rank receives."""
    first_src, first_dst, others = pairs.src[0], pairs.dst[0], pairs.ranks - 1
    if len(pairs.src) == 1:
        return f"rank {first_src} sends {pairs.what} to rank {first_dst}"
    if (pairs.src == first_src).all():
        to = "every other rank" if len(pairs.dst) == others else f"each of {len(pairs.dst)} ranks"
        return f"rank {first_src} sends {pairs.what} to {to}"
    if (pairs.dst == first_dst).all():
        who = "every other rank sends" if len(pairs.src) == others else f"{len(pairs.src)} ranks each send"
        return f"{who} {pairs.what} to rank {first_dst}"
    return ""


def _exchange(pairs: _Pairs) -> str:
    """Ranks are paired, and each sends to the other."""
    there, back = (np.stack(columns) for columns in ((pairs.src, pairs.dst), (pairs.dst, pairs.src)))
    single = len(np.unique(pairs.src)) == len(pairs.src)
    if not single or not np.array_equal(there, back[:, np.argsort(pairs.dst)]) or (pairs.src == pairs.dst).any():
        return ""
    if pairs.ranks == 2:
        return f"the two ranks exchange {pairs.what}"
    distance = np.unique(np.abs(pairs.src - pairs.dst))
    apart = f", {distance[0]} apart" if len(distance) == 1 else ""
    who = "all ranks" if len(pairs.src) == pairs.ranks else f"{len(pairs.src)} of {pairs.ranks} ranks"
    return f"{who} exchange {pairs.what} in pairs{apart}"


def _everyone(pairs: _Pairs) -> str:
    """Every rank sends to every other, of the world or of its group."""
    if len(np.unique(pairs.src)) < pairs.ranks or (pairs.src == pairs.dst).any():
        return ""
    first = np.arange(pairs.ranks)
    np.minimum.at(first, pairs.src, pairs.dst)
    size = np.bincount(first, minlength=pairs.ranks)
    closed = (first[pairs.src] == first[pairs.dst]).all() and len(pairs.src) == int((size * (size - 1)).sum())
    sizes = np.unique(size[size > 0])
    if not closed or len(sizes) != 1:
        return ""
    if sizes[0] == pairs.ranks:
        return f"every rank sends {pairs.what} to every other rank"
    return f"in each group of {sizes[0]} ranks, every rank sends {pairs.what} to every other rank"


def _shift(pairs: _Pairs) -> str:
    """Every rank sends to the ranks the same one or two distances away."""
    distance = (pairs.dst - pairs.src) % pairs.ranks
    shifts, uses = np.unique(distance, return_counts=True)
    if len(shifts) > 2 or (uses != pairs.ranks).any():
        return ""
    if len(shifts) == 2:
        if shifts.tolist() != [1, pairs.ranks - 1]:
            return ""
        return f"every rank sends {pairs.what} to each side"
    right, left = int(shifts[0]), pairs.ranks - int(shifts[0])
    if min(right, left) == 1:
        return f"every rank sends {pairs.what} to the {'right' if right == 1 else 'left'}"
    side = f"{right} places to the right" if right <= left else f"{left} places to the left"
    return f"every rank sends {pairs.what} to the rank {side}" if right < pairs.ranks else ""


def _cycles(pairs: _Pairs) -> str:
    """Every rank sends to one rank and hears from one, so that the transfers form rings."""
    if not (np.array_equal(pairs.src, np.arange(pairs.ranks)) and np.array_equal(np.sort(pairs.dst), pairs.src)):
        return ""
    length = np.ones(pairs.ranks, np.int64)
    at = pairs.dst.copy()
    while (away := at != pairs.src).any():
        length += away
        at = np.where(away, pairs.dst[at], at)
    if (length != length[0]).any() or length[0] == 1:
        return f"every rank sends {pairs.what} to one rank and hears from one"
    if length[0] == pairs.ranks:
        return f"every rank sends {pairs.what} to the next rank of a ring"
    return f"in each of {pairs.ranks // length[0]} rings of {length[0]} ranks, every rank sends {pairs.what} onwards"


def _side_by_side(pairs: _Pairs) -> str:
    """Anything else, by its numbers."""
    senders, receivers = len(np.unique(pairs.src)), len(np.unique(pairs.dst))
    who = "all ranks" if senders == pairs.ranks else f"{senders} of {pairs.ranks} ranks"
    if senders == receivers == len(pairs.src):
        return f"{who} each send {pairs.what} to one rank"
    if len(pairs.src) == senders * (pairs.ranks - 1):
        return f"{who} each send {pairs.what} to every other rank"
    whom = "all ranks" if receivers == pairs.ranks else f"{receivers} ranks"
    return f"{who} send to {whom}, {pairs.what} at a time"


class _Progress:
    """What is complete so far: bool, shape (ranks, chunks), true where a rank has what it must end with."""

    def __init__(self, schedule: Schedule, held: Bits) -> None:
        what = collective(schedule.collective)
        self.schedule, self.reduces = schedule, what.reduces
        self.required = what.after(schedule.ranks, schedule.chunks, schedule.root)
        self.expected = contributions_after(schedule)
        self.needed = self.required.sum(axis=1)
        self.complete = self.required & (held == self.expected).all(axis=2)

    def news(self, round_: Round, held: Bits) -> str:
        """What the round has brought, by example."""
        to, chunk = arrivals(self.schedule, round_)
        arrived = held[to, chunk]
        self.complete[to, chunk] = self.required[to, chunk] & (arrived == self.expected[chunk]).all(axis=1)
        done = self.complete.sum(axis=1)
        if (done == self.needed).all():
            return "every rank is done"
        if not len(to):
            return "nothing changes"
        gathered = np.bitwise_count(arrived).sum(axis=1)
        most = gathered == gathered.max()
        rank = int(to[most].min())
        if self.reduces and (gathered.max() < self.schedule.ranks or not done[rank]):
            which = int(chunk[most & (to == rank)].min())
            return f"rank {rank} now holds {gathered.max()} of {self.schedule.ranks} contributions of chunk {which}"
        rank = int(to[done[to] == done[to].max()].min())
        if done[rank] == self.needed[rank]:
            return f"rank {rank} is done"
        return f"rank {rank} now has {done[rank]} of its {counted(int(self.needed[rank]), 'chunk')} complete"
