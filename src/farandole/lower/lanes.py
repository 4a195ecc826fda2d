"""Which lane carries out the steps of which queue."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from farandole.lower.fuse import Fusion
from farandole.lower.messages import Messages

SENDER, RECEIVER = 0, 1

Lanes = NDArray[np.int64]


def lanes_of_queues(messages: Messages, fused: Fusion, side_by_side: bool) -> tuple[Lanes, Lanes]:
    """For each message, the lane that sends it and the lane that receives it: numbers that differ within a rank.

    Without ``side_by_side`` every rank has one lane. With it, there is one for sending and one for receiving;
    but a queue has one lane at each end, and a fused step is at the ends of two. So the ends that fused
    steps tie together get a lane of their own, such as one for each direction of a ring.
    """
    size = len(messages)
    if not side_by_side:
        return np.zeros(size, np.int64), np.zeros(size, np.int64)
    ranks = int(max(messages.src.max(initial=0), messages.dst.max(initial=0))) + 1
    sending = (messages.src.astype(np.int64) * ranks + messages.dst) * 2 + SENDER
    receiving = (messages.dst.astype(np.int64) * ranks + messages.src) * 2 + RECEIVER
    arrives = np.flatnonzero(fused.onward >= 0)
    ties = np.unique(np.stack([receiving[arrives], sending[fused.onward[arrives]]], axis=1), axis=0)
    ends, groups = _components(ties)
    return _chosen(sending, SENDER, ends, groups), _chosen(receiving, RECEIVER, ends, groups)


def _chosen(end: Lanes, otherwise: int, ends: Lanes, groups: Lanes) -> Lanes:
    """The group of each queue's end where it has one, a common lane otherwise."""
    if not len(ends):
        return np.full(len(end), otherwise, np.int64)
    place = np.minimum(np.searchsorted(ends, end), len(ends) - 1)
    return np.where(ends[place] == end, groups[place] + 2, otherwise)


def _components(ties: Lanes) -> tuple[Lanes, Lanes]:
    """The ends that occur in ``ties``, ascending, and for each the number of its connected component."""
    parent: dict[int, int] = {}

    def find(end: int) -> int:
        while parent.setdefault(end, end) != end:
            end = parent[end]
        return end

    for one, other in ties.tolist():
        parent[find(one)] = find(other)
    ends = np.array(sorted(parent), np.int64)
    _, groups = np.unique(np.array([find(end) for end in ends.tolist()], np.int64), return_inverse=True)
    return ends, groups.astype(np.int64)
