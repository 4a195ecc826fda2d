"""Double binary tree: two trees, each with half of the buffer; a leaf of one is an inner rank of the other.

In one tree half of the ranks only send up and receive down. The second tree gives them the other half of
the work, so that the full bandwidth of every rank is used, with a depth of about log n.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.algorithms.registry import algorithm
from farandole.schedule import Ints, Round, merged, placed

PAPER = "Sanders, Speck and Traff, Two-tree algorithms for full bandwidth broadcast, 2009; NCCL 2.4"


def parents(n: int) -> Ints:
    """The parent of each rank in the first tree, -1 for the root: shape (n,).

    An in-order binary tree: odd ranks are leaves; rank r with lowest set bit b hangs under the multiple
    of 2b next to it that is an odd multiple of 2b (or the one before it, where that one is not below n).
    """
    rank = np.arange(n, dtype=np.int32)
    bit = rank & -rank
    up = (rank ^ bit) | (bit << 1)
    up = np.where(up < n, up, rank ^ bit).astype(np.int32)
    up[0] = -1
    return up


def second_tree(n: int) -> Ints:
    """Which rank takes each place of the second tree: mirrored if n is even, shifted by one if it is odd."""
    place = np.arange(n, dtype=np.int32)
    return n - 1 - place if n % 2 == 0 else (place + 1) % n


def _depths(parent: Ints) -> Ints:
    depth = np.zeros(len(parent), np.int32)
    above = parent.copy()
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parent[above], -1)
    return depth


def _one_tree(n: int) -> Iterator[Round]:
    parent = parents(n)
    depth = _depths(parent)
    levels = [np.flatnonzero(depth == d) for d in range(1, int(depth.max()) + 1)]
    for level in reversed(levels):
        yield Round(src=level, dst=parent[level], reduce=True, phase="reduce")
    for level in levels:
        yield Round(src=parent[level], dst=level, phase="broadcast")


@algorithm(
    "double_tree",
    "all_reduce",
    chunks=2,
    rounds="2 (floor(log n) + 1) at most",
    bytes_per_rank="2S at most",
    paper=PAPER,
)
def all_reduce(n: int) -> Iterator[Round]:
    """Each half of the buffer is reduced up its own binary tree and broadcast down again."""
    yield from merged(placed(_one_tree(n), np.arange(n), chunk=0), placed(_one_tree(n), second_tree(n), chunk=1))
