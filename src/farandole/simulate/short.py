"""Algorithms told in a few words, for worlds too large to list.

A ring of 100,000 ranks has 20 billion transfers, but its rounds are all the same; an exchange between all pairs
is one round of 10 billion. So the algorithms whose list of transfers grows with the square of the ranks, or that
have many equal rounds, are told here once more, in short: which rounds, how often. A test compares each of these
with the list. All other algorithms are taken round by round from their own generator.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from farandole.algorithms.registry import Option, Ranks, check_order, check_shape, find, near_square
from farandole.errors import UnsupportedError
from farandole.schedule import Ints, Round, merged, placed

LARGEST_ROUND = 1 << 25  # transfers: more than that in one round are not listed


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """``repeat`` rounds like ``round``, of which only ``src``, ``dst``, ``count`` and ``reduce`` matter."""

    round: Round
    repeat: int


@dataclass(frozen=True, slots=True)
class Everyone:
    """One round in which every rank sends ``count`` chunks to every other."""

    count: int
    reduce: bool


@dataclass(frozen=True, slots=True)
class Shifts:
    """Rounds in which every rank sends a chunk to the rank ``distances[i]`` places on."""

    distances: range


Part = Same | Everyone | Shifts
Short = Callable[..., Iterator[Part]]


def _along(n: int, order: Ranks, reduce: bool, both: bool) -> Round:
    rank = np.fromiter(check_order(n, order), np.int32, n)
    src, dst = rank, np.roll(rank, -1)
    if both:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    return Round(src=src, dst=dst, reduce=reduce)


def _ring(*reduces: bool, both: bool = False) -> Short:
    def parts(n: int, order: Ranks = ()) -> Iterator[Part]:
        for reduce in reduces if n > 1 else ():
            yield Same(_along(n, order, reduce, both), n - 1)

    return parts


def _direct(*reduces: bool) -> Short:
    def parts(n: int) -> Iterator[Part]:
        for reduce in reduces if n > 1 else ():
            yield Everyone(1, reduce)

    return parts


def _pairwise(n: int) -> Iterator[Part]:
    yield Shifts(range(1, n))


def _bruck(n: int) -> Iterator[Part]:
    for step in (1 << k for k in range((n - 1).bit_length())):
        moving = n // (2 * step) * step + max(0, n % (2 * step) - step)
        yield Same(_onwards(n, step, moving), 1)


def _doubled(ways: int) -> Short:
    """Rounds in which what a rank has, or knows, is handed on by so many places, which double; ``ways`` is 1 or -1."""

    def parts(n: int) -> Iterator[Part]:
        for have in (1 << k for k in range((n - 1).bit_length())):
            yield Same(_onwards(n, ways * have, min(have, n - have)), 1)

    return parts


def _onwards(n: int, distance: int, count: int) -> Round:
    rank = np.arange(n, dtype=np.int32)
    return Round(src=rank, dst=(rank + distance) % n, count=count)


def _hierarchical(n: int, levels: Ranks = (), inside: str = "ring", across: str = "ring") -> Iterator[Part]:
    shape = check_shape(n, levels, "levels", near_square)
    width = find("all_reduce", "hierarchical").chunk_rule(n, levels=levels, inside=inside, across=across)
    gather: list[list[Same]] = []
    stride = 1
    for size in shape[:-1]:
        members = _members(n, stride, size)
        yield from _in_groups("reduce_scatter", inside, members, width)
        gather.append(list(_in_groups("all_gather", inside, members, width)))
        width //= size
        stride *= size
    yield from _in_groups("all_reduce", across, _members(n, stride, shape[-1]), width)
    for parts in reversed(gather):
        yield from parts


def _torus(n: int, sides: Ranks = ()) -> Iterator[Part]:
    shape = check_shape(n, sides, "sides", near_square)
    if len(shape) != 2:
        find("all_reduce", "torus").build(n, options={"sides": sides})  # which says what is wrong
    width, height = shape
    turned = np.arange(n, dtype=np.int32).reshape(height, width).T.ravel()
    rows_first = [part for part in _hierarchical(n, (width, height)) if isinstance(part, Same)]
    columns_first = [
        Same(next(placed([part.round], turned)), part.repeat)
        for part in _hierarchical(n, (height, width))
        if isinstance(part, Same)
    ]
    yield from _side_by_side(rows_first, columns_first)


def _members(n: int, stride: int, size: int) -> Ints:
    """The groups of ``size`` ranks that differ in one digit of the mixed-radix rank: shape (n/size, size)."""
    rank = np.arange(n, dtype=np.int32)
    first = rank[rank // stride % size == 0]
    members: Ints = first[:, None] + stride * np.arange(size, dtype=np.int32)
    return members


def _in_groups(collective: str, name: str, members: Ints, width: int) -> Iterator[Same]:
    """An algorithm in all groups at once, each on ``width`` chunks; ``members`` has shape (groups, ranks)."""
    groups, size = members.shape
    chunk = width // find(collective, name).chunk_rule(size)
    parts = parts_of(collective, name, size, {})
    repeated = [part for part in parts or [] if isinstance(part, Same)]
    if parts is None or len(repeated) < len(parts):
        if parts is not None and groups * size * size > LARGEST_ROUND:
            raise UnsupportedError(
                f"{name} in {groups:,} groups of {size:,} ranks is more than can be listed: use ring there, or"
                " smaller groups"
            )
        repeated = [Same(round_, 1) for round_ in find(collective, name).build(size).rounds]
    for part in repeated:
        yield Same(next(placed([part.round], members, 0, chunk)), part.repeat)


def _side_by_side(one: list[Same], other: list[Same]) -> Iterator[Same]:
    """Two sequences of rounds at once, the k-th rounds of both as one."""
    starts = [np.cumsum([0, *(part.repeat for part in parts)]).tolist() for parts in (one, other)]
    bounds = sorted({*starts[0], *starts[1]})
    for begin, end in pairwise(bounds):
        running = [
            parts[bisect_right(start, begin) - 1]
            for parts, start in zip((one, other), starts, strict=True)
            if begin < start[-1]
        ]
        yield Same(next(merged(*([part.round] for part in running))), end - begin)


SHORT: Mapping[tuple[str, str], Short] = {
    ("all_reduce", "ring"): _ring(True, False),
    ("reduce_scatter", "ring"): _ring(True),
    ("all_gather", "ring"): _ring(False),
    ("all_reduce", "bidirectional_ring"): _ring(True, False, both=True),
    ("reduce_scatter", "bidirectional_ring"): _ring(True, both=True),
    ("all_gather", "bidirectional_ring"): _ring(False, both=True),
    ("all_reduce", "hierarchical"): _hierarchical,
    ("all_reduce", "torus"): _torus,
    ("all_reduce", "direct"): _direct(True, False),
    ("all_reduce", "naive"): _direct(True),
    ("reduce_scatter", "direct"): _direct(True),
    ("all_gather", "direct"): _direct(False),
    ("all_to_all", "direct"): _direct(False),
    ("all_to_all", "pairwise"): _pairwise,
    ("all_to_all", "bruck"): _bruck,
    ("all_gather", "bruck"): _doubled(-1),
    ("barrier", "dissemination"): _doubled(1),
}


def parts_of(collective: str, name: str, n: int, options: Mapping[str, Option]) -> list[Part] | None:
    """The algorithm in short, or None if it has no short form (or no such options, which it says itself)."""
    short = SHORT.get((collective, name))
    if short is None or not set(options) <= set(find(collective, name).options):
        return None
    arguments: dict[str, Any] = dict(options)
    return list(short(n, **arguments))
