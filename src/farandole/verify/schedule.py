"""Prove a schedule by exact symbolic execution: who has contributed to which chunk, as bit sets.

A chunk at a rank is the set of ranks whose input has gone into it; the empty set means that the rank does
not hold it. A copy replaces the set, a reduction unites disjoint sets. The execution is exact, since what
a transfer carries depends on rounds alone and never on timing.

The rules, by the word in ``Problem.rule``:

- ``range``: a rank or a chunk that does not exist, or a run of no chunks;
- ``self-send``: a transfer from a rank to itself;
- ``not-held``: the sender (or, for a reduction, the receiver) does not hold the chunk;
- ``counted-twice``: a reduction of sets that overlap;
- ``write-conflict``: a chunk of a rank is written by a copy and by anything else in one round;
- ``missing``, ``wrong``: at the end, a required chunk lacks contributions, or has others than it should.

All problems are found, not the first: after one, execution goes on with what the transfer would leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from farandole.collectives import collective
from farandole.errors import ResourceError
from farandole.schedule import Ints, Round, Schedule
from farandole.verify.report import Problem, Report

Bits = NDArray[np.uint64]
LIMIT = 1000
MOST_BYTES = 16 << 30


def verify_schedule(schedule: Schedule) -> Report:
    """Prove ``schedule``, or say everything that is wrong with it (at most the first 1,000 problems).

    Raises ResourceError where that takes more than 16 GiB: every rank has a set of ranks for every chunk.
    """
    what = collective(schedule.collective)
    what.check_chunks(schedule.ranks, schedule.chunks)
    held = contributions_before(schedule)
    problems: list[Problem] = []
    for number, round_ in enumerate(schedule.rounds):
        for problem in _execute(held, round_, number):
            if len(problems) < LIMIT:
                problems.append(problem)
    problems.extend(_final_problems(schedule, held, LIMIT - len(problems)))
    return Report(schedule.name or schedule.collective, tuple(problems), schedule.transfers)


def contributions_before(schedule: Schedule) -> Bits:
    """Who has contributed to what at the start: uint64 bit sets, shape (ranks, chunks, words)."""
    ranks, words = schedule.ranks, -(-schedule.ranks // 64)
    _check_room(ranks * schedule.chunks * words, f"{ranks} ranks and {schedule.chunks} chunks")
    held = np.zeros((ranks, schedule.chunks, words), np.uint64)
    mask = collective(schedule.collective).before(ranks, schedule.chunks, schedule.root)
    for rank in range(ranks):
        held[rank, mask[rank], rank // 64] = np.uint64(1) << np.uint64(rank % 64)
    return held


def contributions_after(schedule: Schedule) -> Bits:
    """Who must have contributed to each chunk where it is required at the end: shape (chunks, words)."""
    what, of_all = collective(schedule.collective), held_of_all(schedule.ranks)
    if what.reduces:
        return np.tile(np.bitwise_or.reduce(of_all, axis=0), (schedule.chunks, 1))
    return of_all[what.origin(schedule.ranks, schedule.chunks, schedule.root)]


def contributions(schedule: Schedule, rounds: int | None = None) -> Bits:
    """Who has contributed to what after the first ``rounds`` rounds (all of them by default)."""
    *_, held = islice(states(schedule), None if rounds is None else rounds + 1)
    return held


def states(schedule: Schedule) -> Iterator[Bits]:
    """Who has contributed to what at the start, and after each round: one array, changed in place."""
    held = contributions_before(schedule)
    yield held
    for number, round_ in enumerate(schedule.rounds):
        for _ in _execute(held, round_, number):
            pass
        yield held


def _check_room(words: int, what: str) -> None:
    if 8 * words > MOST_BYTES:
        raise ResourceError(
            f"to look into a schedule with {what} takes {8 * words >> 20:,} MiB, and at most {MOST_BYTES >> 20:,} are"
            " allowed; try it with fewer ranks or chunks",
            needed=8 * words,
            available=MOST_BYTES,
        )


def members(bits: Bits) -> list[int]:
    """The ranks in one bit set, ascending."""
    return [word * 64 + bit for word, value in enumerate(bits.tolist()) for bit in range(64) if value >> bit & 1]


def in_words(bits: Bits) -> str:
    """The ranks in one bit set as people write them: ``ranks 0-2, 5``."""
    ranks = members(bits)
    if not ranks:
        return "nothing"
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    listed = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
    return f"rank{'s' if len(ranks) > 1 else ''} {listed}"


def _execute(held: Bits, round_: Round, number: int) -> Iterator[Problem]:
    """Carry out one round on ``held``, in place, and yield what is wrong with it."""
    ranks, chunks, _ = held.shape
    bad = (
        (np.minimum(round_.src, round_.dst) < 0)
        | (np.maximum(round_.src, round_.dst) >= ranks)
        | (round_.chunk < 0)
        | (round_.count < 1)
        | (round_.chunk.astype(np.int64) + round_.count > chunks)
    )
    for i in np.flatnonzero(bad):
        src, dst, first, count = (int(c[i]) for c in (round_.src, round_.dst, round_.chunk, round_.count))
        yield Problem(
            "range",
            f"round {number + 1}: a transfer of {count} chunks from chunk {first}, rank {src} to rank {dst}, is"
            f" outside a world of {ranks} ranks and {chunks} chunks",
            src, number, first, f"ranks below {ranks}, chunks below {chunks}", f"{src}->{dst}, {first}+{count}",
        )  # fmt: skip
    for i in np.flatnonzero((round_.src == round_.dst) & ~bad):
        rank, first = int(round_.src[i]), int(round_.chunk[i])
        yield Problem(
            "self-send", f"round {number + 1}: rank {rank} sends chunk {first} to itself", rank, number, first,
            "another rank", f"rank {rank}",
        )  # fmt: skip
    good = np.flatnonzero(~bad)
    if len(good):
        yield from _apply(held, *_singly(round_, good), number)


def _singly(round_: Round, rows: NDArray[np.intp]) -> tuple[Ints, Ints, Ints, NDArray[np.bool_]]:
    """The transfers of ``rows`` cut into single chunks, ordered by (dst, chunk): src, dst, chunk, reduce."""
    count = round_.count[rows]
    _check_room(6 * int(count.sum(dtype=np.int64)), f"a round of {len(rows)} transfers of so many chunks")
    row = np.repeat(rows, count)
    within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    chunk = round_.chunk[row] + within.astype(np.int32)
    order = np.lexsort((round_.src[row], chunk, round_.dst[row]))
    row = row[order]
    return round_.src[row], round_.dst[row], chunk[order], round_.reduce[row]


def _apply(held: Bits, src: Ints, dst: Ints, chunk: Ints, reduce: NDArray[np.bool_], number: int) -> Iterator[Problem]:
    carried = held[src, chunk]
    arrives = carried.any(axis=1)
    for i in np.flatnonzero(~arrives):
        yield _not_held(int(src[i]), int(chunk[i]), number, f"sends it to rank {dst[i]}")

    new = np.empty(len(dst), np.bool_)
    new[0] = True
    new[1:] = (dst[1:] != dst[:-1]) | (chunk[1:] != chunk[:-1])
    first = np.flatnonzero(new)
    to, what = dst[first], chunk[first]
    size = np.diff(np.append(first, len(dst)))
    copies = np.add.reduceat(~reduce, first)
    before = held[to, what]
    for g in np.flatnonzero((copies > 0) & (size > 1)):
        writers = src[first[g] : first[g] + size[g]].tolist()
        yield Problem(
            "write-conflict",
            f"round {number + 1}: chunk {what[g]} of rank {to[g]} is written by ranks {', '.join(map(str, writers))}"
            " at once, and not all of them reduce",
            int(to[g]), number, int(what[g]), "one copy, or reductions only", f"{copies[g]} copies in {size[g]} writes",
        )  # fmt: skip

    reducing = copies == 0
    for g in np.flatnonzero(reducing & ~before.any(axis=1)):
        yield _not_held(int(to[g]), int(what[g]), number, "is to reduce into it")
    united = np.bitwise_or.reduceat(carried, first, axis=0)
    total = np.add.reduceat(np.bitwise_count(carried).sum(axis=1, dtype=np.int64), first)
    after = np.where(reducing[:, None], before | united, united)
    total = total + np.where(reducing, np.bitwise_count(before).sum(axis=1, dtype=np.int64), 0)
    for g in np.flatnonzero(reducing & (total != np.bitwise_count(after).sum(axis=1, dtype=np.int64))):
        seen, twice = before[g].copy(), np.zeros_like(before[g])
        for bits in carried[first[g] : first[g] + size[g]]:
            twice |= seen & bits
            seen |= bits
        yield Problem(
            "counted-twice",
            f"round {number + 1}: in chunk {what[g]} at rank {to[g]}, the contribution of {in_words(twice)} is"
            " counted twice",
            int(to[g]), number, int(what[g]), "disjoint contributions", f"{in_words(twice)} twice",
        )  # fmt: skip
    held[to, what] = after


def _not_held(rank: int, chunk: int, number: int, verb: str) -> Problem:
    return Problem(
        "not-held",
        f"round {number + 1}: rank {rank} {verb}, but does not hold chunk {chunk}",
        rank, number, chunk, f"chunk {chunk} at rank {rank}", "nothing",
    )  # fmt: skip


def _final_problems(schedule: Schedule, held: Bits, limit: int) -> Iterator[Problem]:
    what = collective(schedule.collective)
    required = what.after(schedule.ranks, schedule.chunks, schedule.root)
    expected = contributions_after(schedule)
    wrong = required & (held != expected).any(axis=2)
    for rank, chunk in np.argwhere(wrong)[: max(limit, 0)].tolist():
        got, want = held[rank, chunk], expected[chunk]
        lacks = want & ~got
        rule = "missing" if lacks.any() else "wrong"
        detail = f"lacks {in_words(lacks)}" if lacks.any() else f"should have only {in_words(want)}"
        yield Problem(
            rule,
            f"at the end, chunk {chunk} of rank {rank} has contributions of {in_words(got)}: it {detail}",
            rank, -1, chunk, in_words(want), in_words(got),
        )  # fmt: skip


def held_of_all(ranks: int) -> Bits:
    """The bit set {rank} of each rank: shape (ranks, words)."""
    rank = np.arange(ranks)
    bits = np.zeros((ranks, -(-ranks // 64)), np.uint64)
    bits[rank, rank // 64] = np.uint64(1) << (rank % 64).astype(np.uint64)
    return bits
