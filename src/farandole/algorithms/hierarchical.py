"""Hierarchical: reduce-scatter inside each group, all-reduce across the groups, all-gather inside.

Only 1/(group size) of the buffer crosses between groups for each rank, so slow links between hosts carry
little. More than two levels nest: what is 'across' for the inner level is a hierarchy of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from farandole.algorithms.registry import Ranks, algorithm, check_shape, find, near_square
from farandole.schedule import Ints, Round, named, placed

PAPER = "Jia et al., Highly scalable deep learning training system, 2018; BlueConnect, Cho et al., MLSys 2019"


def _per_block(name: str, size: int) -> int:
    return math.lcm(find("reduce_scatter", name).chunk_rule(size), find("all_gather", name).chunk_rule(size)) // size


def _widths(levels: Ranks, inside: str, across: str) -> list[int]:
    """Chunks in what one rank works on, at each level: the whole buffer first, the outermost level last."""
    *inner, outer = levels
    widths = [find("all_reduce", across).chunk_rule(outer)]
    for size in reversed(inner):
        widths.append(size * math.lcm(widths[-1], _per_block(inside, size)))
    return widths[::-1]


def _shape(n: int, levels: Ranks) -> Ranks:
    return check_shape(n, levels, "levels", near_square)


def _chunks(n: int, levels: Ranks = (), inside: str = "ring", across: str = "ring") -> int:
    return _widths(_shape(n, levels), inside, across)[0]


@algorithm(
    "hierarchical",
    "all_reduce",
    chunks=_chunks,
    rounds="those of its levels: g-1 + 2(n/g-1) + g-1 for rings in groups of g",
    bytes_per_rank="2S(n-1)/n, of which 2S(n/g-1)/n between groups of g",
    paper=PAPER,
)
def all_reduce(n: int, levels: Ranks = (), inside: str = "ring", across: str = "ring") -> Iterator[Round]:
    """Reduce-scatter inside groups, all-reduce across them, all-gather inside.

    ``levels`` are the sizes from the innermost group outwards (8x4: 4 groups of 8 consecutive ranks);
    ``inside`` names a reduce_scatter and all_gather algorithm, ``across`` an all_reduce algorithm.
    """
    shape = _shape(n, levels)
    widths = _widths(shape, inside, across)
    rank = np.arange(n, dtype=np.int32)
    gather: list[list[Round]] = []
    stride, base = 1, np.zeros(n, np.int32)
    for level, size in enumerate(shape[:-1]):
        members, lead = _groups(n, stride, size), _groups(n, stride, size)[:, 0]
        width = widths[level] // size
        step = find("reduce_scatter", inside).build(size)
        where = f"level {level + 1}" if len(shape) > 2 else "inside"
        yield from named(
            f"reduce-scatter {where}", placed(step.rounds, members, base[lead], widths[level] // step.chunks)
        )
        step = find("all_gather", inside).build(size)
        back = placed(step.rounds, members, base[lead], widths[level] // step.chunks)
        gather.append(list(named(f"all-gather {where}", back)))
        base = base + rank // stride % size * width
        stride *= size
    members = _groups(n, stride, shape[-1])
    middle = find("all_reduce", across).build(shape[-1])
    yield from named("across", placed(middle.rounds, members, base[members[:, 0]], 1))
    for rounds in reversed(gather):
        yield from rounds


def _groups(n: int, stride: int, size: int) -> Ints:
    """The groups of ``size`` ranks that differ in one digit of the mixed-radix rank: shape (n/size, size)."""
    rank = np.arange(n, dtype=np.int32)
    first = rank[rank // stride % size == 0]
    members: Ints = first[:, None] + stride * np.arange(size, dtype=np.int32)
    return members
