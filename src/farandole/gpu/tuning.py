"""NCCL's own prediction of its times, and what it chooses by it.

The rules, from ``ncclTopoTuneModel`` and ``ncclTopoGetAlgoTime`` in NCCL's ``src/graph/tuning.cc`` and from
``topoGetAlgoInfo`` in ``src/enqueue.cc`` (v2.30.7; the constants are in ``constants.py``):

- The time of an algorithm with a protocol is its latency plus the size over its bandwidth. The size is that of the
  larger of input and output: of an all_gather the output, of a reduce_scatter the input.
- The latency is a base, plus hops: a ring takes 2(n-1) for an all_reduce, n-1 for a reduce_scatter or all_gather; a
  tree goes up and down its host's chain and log2 of the hosts. A ring with Simple over several hosts pays 1.4 times
  its latency (1.9 before Ampere) from 64 B per channel and rank on.
- The bandwidth is channels times their speed, less what the protocol takes (LL half, LL128 8%), capped by constants.
- NCCL takes the least time. Channels, then threads, shrink while there are too few bytes for each thread.

What is left out: CollNet (SHARP in the switches), aggregation of several calls, registered buffers, symmetric
memory kernels, tuner plugins and environment variables. What NCCL does then, it does not decide by this model alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from farandole.errors import UnsupportedError
from farandole.gpu import constants
from farandole.gpu.graph import Graph, Machine, graphs

Floats = NDArray[np.float64]
US, GB = 1e-6, 1e9

STEPS: dict[str, Callable[[int], int]] = {
    "all_reduce": lambda n: 2 * (n - 1),
    "reduce_scatter": lambda n: n - 1,
    "all_gather": lambda n: n - 1,
    "broadcast": lambda n: n,
    "reduce": lambda n: n,
}
ALGORITHMS_OF = {
    "all_reduce": ("tree", "ring", "nvls", "nvls_tree"),
    "reduce_scatter": ("ring", "nvls", "pat"),
    "all_gather": ("ring", "nvls", "pat"),
    "broadcast": ("ring",),
    "reduce": ("ring",),
}


@dataclass(frozen=True, slots=True)
class Rate:
    """Latency and bandwidth of one algorithm with one protocol, in seconds and bytes of the buffer per second."""

    algorithm: str
    protocol: str
    latency_s: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Choice:
    """What NCCL would run for one size, and how long it takes that to be.

    ``channels`` and ``threads`` are the most that it would use; how it then cuts up the buffer may leave some idle.
    """

    size_bytes: int
    algorithm: str
    protocol: str
    channels: int
    threads: int
    time_s: float


def rates(machine: Machine, collective: str, shape: dict[str, Graph] | None = None) -> list[Rate]:
    """Latency and bandwidth of every algorithm and protocol that NCCL has for a collective on a machine.

    ``shape`` are the channels (from :func:`farandole.gpu.graph.graphs`, unless given). Raises UnsupportedError for a
    collective that NCCL's model does not know.
    """
    if collective not in STEPS:
        raise UnsupportedError(
            f"NCCL's model has no {collective}: it knows {', '.join(STEPS)}; all_to_all and the like are made of"
            " point-to-point messages there",
            collective=collective,
        )
    channels = shape or graphs(machine)
    found = []
    for algorithm in ALGORITHMS_OF[collective]:
        for protocol in constants.PROTOCOLS:
            if not _is_enabled(machine, algorithm, protocol, channels):
                continue
            bandwidth = _bandwidth(machine, collective, algorithm, protocol, channels)
            latency = _latency(machine, collective, algorithm, protocol)
            if bandwidth > 0:
                found.append(Rate(algorithm, protocol, latency * US, bandwidth * GB))
    return found


def times(
    machine: Machine, collective: str, sizes: ArrayLike, shape: dict[str, Graph] | None = None
) -> dict[tuple[str, str], Floats]:
    """By algorithm and protocol, the time in seconds that NCCL predicts for each size in bytes, shape (sizes,).

    >>> machine = Machine(1, 8, "ampere", "nvlink", 240.0)
    >>> float((times(machine, "all_reduce", [8])["tree", "LL"] * 1e6).round(2)[0])
    15.2
    """
    channels = shape or graphs(machine)
    size = np.atleast_1d(np.asarray(sizes, np.float64))
    return {
        (rate.algorithm, rate.protocol): _times(machine, collective, rate, size, channels)
        for rate in rates(machine, collective, channels)
    }


def choose(machine: Machine, collective: str, sizes: ArrayLike, shape: dict[str, Graph] | None = None) -> list[Choice]:
    """What NCCL would choose for each size in bytes; of equal times the first in NCCL's order."""
    channels = shape or graphs(machine)
    found = times(machine, collective, sizes, channels)
    table = np.stack(list(found.values()))
    names = list(found)
    chosen = []
    for place, size in enumerate(np.atleast_1d(np.asarray(sizes, np.int64)).tolist()):
        best = int(table[:, place].argmin())
        algorithm, protocol = names[best]
        count, threads = channels_and_threads(machine, algorithm, protocol, size, channels)
        chosen.append(Choice(size, algorithm, protocol, count, threads, float(table[best, place])))
    return chosen


def all_channels(shape: dict[str, Graph]) -> int:
    """How many channels a communicator has: twice what the search found for rings."""
    return min(2 * shape["ring"].channels, constants.MAX_CHANNELS)


def channels_and_threads(
    machine: Machine, algorithm: str, protocol: str, size_bytes: int, shape: dict[str, Graph]
) -> tuple[int, int]:
    """How many channels, and threads in each, NCCL uses at most for a size."""
    if algorithm in ("nvls", "nvls_tree"):
        return constants.NVLS_CHANNELS, 640
    count = all_channels(shape)
    if algorithm == "pat":
        return count, 640
    ring = shape["ring"]
    is_slow = ring.bw_inside * ring.channels <= constants.SLOW_RING_BW
    threads = constants.THREADS[protocol]
    if protocol == "Simple" and algorithm == "ring" and is_slow:
        threads = constants.THREADS_SLOW_RING
    threshold = constants.THREAD_THRESHOLD[protocol]
    if (algorithm, protocol) == ("ring", "LL"):
        threshold *= machine.ranks
    while size_bytes < count * threads * threshold and count > 1:
        count -= 1
    while size_bytes < count * threads * threshold and threads % 128 == 0:
        threads //= 2
    if protocol == "Simple" and algorithm == "ring":
        threads += 32
    return count, 640 if algorithm == "tree" else max(threads, 96)


def _times(machine: Machine, collective: str, rate: Rate, size: Floats, shape: dict[str, Graph]) -> Floats:
    bandwidth = np.full(len(size), rate.bandwidth)
    latency = np.full(len(size), rate.latency_s)
    place = np.floor(np.log2(np.maximum(size // 64, 1))).astype(np.int64)
    protocol = constants.PROTOCOLS.index(rate.protocol)
    if rate.algorithm == "tree" and collective == "all_reduce":
        factor = constants.TREE_CORRECTION[protocol][np.minimum(place, 23)]
        bandwidth *= np.where((size >= 64) & (place < 23), factor, 1.0)
    if rate.algorithm == "nvls_tree" and machine.generation == "blackwell":
        factor = constants.TREE_CORRECTION[protocol][np.minimum(place, 23)]
        bandwidth *= np.where((size >= 64) & (place < 24), factor, 1.0)
    if (rate.algorithm, rate.protocol, collective) == ("ring", "Simple", "all_reduce") and machine.hosts > 1:
        plateau = 1.9 if machine.generation == "volta" else 1.4
        latency *= np.where(size // (all_channels(shape) * machine.ranks) >= 64, plateau, 1.0)
    return np.asarray(latency + size / bandwidth)


def _is_enabled(machine: Machine, algorithm: str, protocol: str, shape: dict[str, Graph]) -> bool:
    if algorithm in ("nvls", "nvls_tree"):
        right_hosts = machine.hosts == 1 if algorithm == "nvls" else machine.hosts > 1
        return protocol == "Simple" and right_hosts and "nvls" in shape and shape["nvls"].channels >= 2
    if algorithm == "pat":
        return protocol == "Simple" and machine.hosts > 1 and machine.ranks_per_host == 1
    is_near = (machine.link == "nvlink" or machine.ranks_per_host == 1) and (machine.hosts == 1 or machine.is_near_nic)
    return protocol != "LL128" or is_near


def _bandwidth(machine: Machine, collective: str, algorithm: str, protocol: str, shape: dict[str, Graph]) -> float:
    """GB/s of the buffer."""
    n, hosts = machine.ranks, machine.hosts
    generation = constants.GENERATIONS.index(machine.generation)
    column = min(hosts, 3) - 1
    graph = shape["nvls" if algorithm in ("nvls", "nvls_tree") else "ring" if algorithm == "ring" else "tree"]
    count = graph.channels
    speed = graph.bw_inside if hosts <= 2 else graph.bw_between
    if algorithm in ("nvls", "nvls_tree"):
        speed = _nvls_speed(machine, collective, algorithm, graph)
    bus = count * speed
    ll_row = generation if hosts == 1 else int(machine.processor == "amd")
    ll_max = constants.LL_MAX_BW[ll_row][column]
    if (algorithm, protocol) == ("ring", "LL"):
        bus = min(ll_max, bus * 0.5)
    if (algorithm, protocol) == ("ring", "LL128"):
        bus = min(bus * 0.92, count * constants.RING_LL128_MAX_BW[generation][column])
    if algorithm == "tree":
        bus = min(bus * 0.92, count * constants.TREE_MAX_BW[generation][column])
        if protocol == "LL":
            bus = min(bus / 3.8, ll_max)
        if protocol == "LL128":
            share = 7 / 9 if hosts == 1 else 120 / 128
            bus = min(bus * share, count * constants.TREE_LL128_MAX_BW[generation][column])
        if _has_plain_trees(machine):
            bus *= 0.85
        return bus * 0.5
    if algorithm == "pat":
        return bus * 0.75
    if algorithm == "nvls" and collective != "all_reduce":
        return bus
    return bus * n / STEPS[collective](n)


def _nvls_speed(machine: Machine, collective: str, algorithm: str, graph: Graph) -> float:
    """GB/s per channel as bus bandwidth."""
    generation = constants.GENERATIONS.index(machine.generation)
    inside = graph.bw_inside * constants.NVLS_EFFICIENCY[generation] * (graph.channels - 1) / graph.channels
    size = machine.ranks_per_host
    inside *= 2 if collective == "all_reduce" else (size - 1) / size
    if algorithm == "nvls":
        return inside if machine.hosts == 1 else min(inside, graph.bw_between)
    between = graph.bw_between * (2 if machine.hosts <= 2 else 1)
    return min(inside, between, constants.NVLS_TREE_MAX_BW[generation][min(machine.hosts, 3) - 1])


def _has_plain_trees(machine: Machine) -> bool:
    """Whether one GPU of a host has all its tree's links to other hosts: alone there, or since Hopper."""
    return machine.ranks_per_host == 1 or (machine.hosts > 1 and machine.generation in ("hopper", "blackwell"))


def _latency(machine: Machine, collective: str, algorithm: str, protocol: str) -> float:
    """Microseconds."""
    n, hosts, size = machine.ranks, machine.hosts, machine.ranks_per_host
    place = constants.PROTOCOLS.index(protocol)
    base = constants.BASE_LATENCY_US[algorithm][place]
    inside = constants.HOP_LATENCY_US[machine.link][algorithm][place]
    net = constants.HOP_LATENCY_US["net"]
    between = net["tree" if size == 1 else algorithm][place]
    levels = int(math.log2(hosts))
    if algorithm == "ring":
        if collective in ("broadcast", "reduce"):
            return base + (inside if hosts == 1 else net["ring"][place])
        overhead = 0.0
        if hosts > 1:
            overhead = constants.NET_OVERHEAD_US[machine.processor] * (3 if protocol == "Simple" else 1)
        crossings = 0 if hosts == 1 else (hosts - 1) * (2 if collective == "all_reduce" else 1)
        return base + (STEPS[collective](n) - crossings) * max(inside, overhead) + crossings * between
    if algorithm == "tree":
        return base + 2 * ((size - 1) * inside + levels * between)
    if algorithm == "nvls":
        return inside + (between if hosts > 1 else 0.0)
    if algorithm == "nvls_tree":
        return base + inside + 2 * levels * between
    return base + levels * between / 3.5 + n * 2.8
