"""NCCL's rings and trees as schedules: one per channel, each with its part of the buffer.

The rules, after ``src/graph/connect.cc`` and ``src/graph/trees.cc`` of NCCL:

- With several hosts, channel k enters and leaves every host at GPU k and its NIC, so that all NICs are used. With one
  host all channels use the same links, and one stands for all.
- A ring goes through the GPUs of a host in turn, beginning at GPU k, and on to the next host.
- A tree is a chain through the GPUs of each host that ends at GPU k, and a double binary tree over those GPUs of all
  hosts: up to reduce, down to broadcast.

Protocols and chunks are not in a schedule. Trees pipeline by slices when they are simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from farandole.algorithms import ring
from farandole.algorithms.double_tree import all_reduce as double_tree
from farandole.gpu.constants import MAX_CHANNELS
from farandole.gpu.graph import Machine
from farandole.schedule import Round, Schedule, merged, named, placed

RINGS = {"all_reduce": ring.all_reduce, "reduce_scatter": ring.reduce_scatter, "all_gather": ring.all_gather}


def channels_of(machine: Machine, most: int) -> int:
    """How many of at most so many channels differ in the links that they use."""
    return min(machine.nics, machine.ranks_per_host, most) if machine.hosts > 1 else 1


def rings(machine: Machine, collective: str, most: int = MAX_CHANNELS) -> Schedule:
    """NCCL's rings for an all_reduce, reduce_scatter or all_gather, on at most so many channels.

    rounds: as one ring; bytes per rank: as one ring, spread over all channels.
    """
    n, count, size = machine.ranks, channels_of(machine, most), machine.ranks_per_host
    host = np.arange(machine.hosts)[:, None] * size
    sequences = []
    for channel in range(count):
        order = tuple((host + (channel + np.arange(size)) % size).ravel().tolist())
        sequences.append(_part(RINGS[collective](n, order), channel, count))
    return Schedule(collective, n, n * count, tuple(merged(*sequences)), name=_name("ring", count))


def trees(machine: Machine, most: int = MAX_CHANNELS) -> Schedule:
    """NCCL's double binary trees for an all_reduce, on at most so many channels.

    rounds: 2 (GPUs of a host - 1) + 2 (floor(log hosts) + 1); bytes per rank: 2S at most, over all channels.
    """
    count = channels_of(machine, most)
    sequences = [_tree(machine, channel) for channel in range(count)]
    return Schedule("all_reduce", machine.ranks, 2 * count, tuple(merged(*sequences)), name=_name("tree", count))


def _name(kind: str, channels: int) -> str:
    return kind if channels == 1 else f"{kind} on {channels} channels"


def _part(rounds: Iterable[Round], channel: int, count: int) -> Iterator[Round]:
    """Rounds of a whole buffer as those of one channel: of each chunk the channel-th of ``count`` parts."""
    for r in rounds:
        yield Round(r.src, r.dst, r.chunk * count + channel, r.count, r.reduce, r.phase)


def _tree(machine: Machine, channel: int) -> Iterator[Round]:
    hosts, size, chunk = machine.hosts, machine.ranks_per_host, 2 * channel
    host = np.arange(hosts) * size
    place = [host + (channel + step) % size for step in range(size)]
    for step in range(size - 1, 0, -1):
        yield Round(place[step], place[step - 1], chunk, 2, reduce=True, phase="reduce in the host")
    yield from named("between hosts", placed(double_tree(hosts), place[0], chunk=chunk))
    for step in range(1, size):
        yield Round(place[step - 1], place[step], chunk, 2, phase="broadcast in the host")
