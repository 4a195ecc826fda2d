"""Ready-made clusters, by the shape of their network.

Bandwidths are per direction. A latency is that of one link where transfers hop from rank to rank (ring, torus,
full, fat-tree), and that of the whole way through a switch elsewhere, half on the link up and half on the link
down. Machines by name (dgx-a100, dgx-h100, pcie, ethernet) have the bandwidths of their data sheets; what a
runtime reaches of them is less, and is a matter of calibration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from farandole.cluster.model import Cluster, Links, Names
from farandole.cluster.routing import FatTree, Levels, Mesh, Rails, Torus
from farandole.errors import UsageError

LARGEST_MESH = 4096


@dataclass(frozen=True, slots=True)
class Speed:
    """A bandwidth in bytes per second and a latency in seconds."""

    bandwidth: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class Costs:
    """What a rank pays for each message that it posts, and for each byte that it reduces."""

    startup_s: float = 0.0
    reduce_s_per_byte: float = 0.0


FREE = Costs()


def torus(name: str, sides: tuple[int, ...], speed: Speed, costs: Costs = FREE) -> Cluster:
    """Rings along every side; a side of 2 has one link each way, not two."""
    ranks = math.prod(sides)
    rank = np.arange(ranks, dtype=np.int32)
    links = Links()
    forward, backward, stride = [], [], 1
    for side in sides:
        place = rank // stride % side
        ahead = rank + ((place + 1) % side - place) * stride
        back = rank + ((place - 1) % side - place) * stride
        if side == 1:
            forward.append(np.full(ranks, -1, np.int32))
            backward.append(forward[-1])
        else:
            forward.append(links.add(rank, ahead, speed.bandwidth, speed.latency_s))
            backward.append(forward[-1] if side == 2 else links.add(rank, back, speed.bandwidth, speed.latency_s))
        stride *= side
    return Cluster(
        name=name,
        node_names=Names(ranks, lambda i: f"d{i}"),
        rank_node=rank,
        rank_host=rank,
        router=Torus(sides, forward, backward),
        startup_s=costs.startup_s,
        reduce_s_per_byte=costs.reduce_s_per_byte,
        alike=True,
        period=1 if len(sides) == 1 else ranks // sides[-1],
        summary=f"{'x'.join(map(str, sides))} devices, linked to their neighbours along every side",
        **links.columns(),
    )


def switch(name: str, ranks: int, speed: Speed, costs: Costs = FREE) -> Cluster:
    """Every rank on one switch that never blocks."""
    rank = np.arange(ranks, dtype=np.int32)
    links = Links()
    up = links.add(rank, ranks, speed.bandwidth, speed.latency_s / 2)
    down = links.add(ranks, rank, speed.bandwidth, speed.latency_s / 2)
    return Cluster(
        name=name,
        node_names=Names(ranks + 1, lambda i: f"d{i}" if i < ranks else "switch"),
        rank_node=rank,
        rank_host=rank,
        router=Levels([up], [down], [np.zeros(ranks, np.int32)]),
        startup_s=costs.startup_s,
        reduce_s_per_byte=costs.reduce_s_per_byte,
        alike=True,
        period=1,
        summary=f"{ranks} devices on one switch",
        **links.columns(),
    )


def full(name: str, ranks: int, speed: Speed, costs: Costs = FREE) -> Cluster:
    """A link of its own from every rank to every other."""
    if ranks > LARGEST_MESH:
        raise UsageError(
            f"a full mesh has at most {LARGEST_MESH} ranks, not {ranks}: it has a link per pair", got=ranks
        )
    rank = np.arange(ranks, dtype=np.int32)
    src, dst = np.divmod(np.arange(ranks * ranks, dtype=np.int32), ranks)
    links = Links()
    links.add(src[src != dst], dst[src != dst], speed.bandwidth, speed.latency_s)
    return Cluster(
        name=name,
        node_names=Names(ranks, lambda i: f"d{i}"),
        rank_node=rank,
        rank_host=rank,
        router=Mesh(ranks),
        startup_s=costs.startup_s,
        reduce_s_per_byte=costs.reduce_s_per_byte,
        alike=True,
        period=1,
        summary=f"{ranks} devices, each linked to all others",
        **links.columns(),
    )


@dataclass(frozen=True, slots=True)
class Words:
    """What hosts, their devices, their switch, and what joins the hosts are called in names of nodes.

    ``summary`` is the cluster in a sentence, with ``{count}`` hosts of ``{size}`` devices.
    """

    host: str = "h"
    device: str = "d"
    inner: str = "switch"
    outer: str = "network"
    summary: str = "{count} hosts of {size} devices, one link to the network each"


def hosts(
    name: str, count: int, size: int, inside: Speed, outside: Speed, costs: Costs = FREE, words: Words | None = None
) -> Cluster:
    """``count`` hosts of ``size`` devices each on a switch; each host has one link to the network.

    A transfer between hosts pays the latency inside and the latency outside.
    """
    names = words or Words()
    ranks = count * size
    rank = np.arange(ranks, dtype=np.int32)
    host = np.arange(count, dtype=np.int32)
    host_node, network = ranks + host, ranks + count
    links = Links()
    up = links.add(rank, host_node[rank // size], inside.bandwidth, inside.latency_s / 2)
    down = links.add(host_node[rank // size], rank, inside.bandwidth, inside.latency_s / 2)
    out = links.add(host_node, network, outside.bandwidth, outside.latency_s / 2)
    into = links.add(network, host_node, outside.bandwidth, outside.latency_s / 2)

    def node_name(i: int) -> str:
        if i < ranks:
            return f"{names.host}{i // size}.{names.device}{i % size}"
        return f"{names.host}{i - ranks}.{names.inner}" if i < network else names.outer

    return Cluster(
        name=name,
        node_names=Names(network + 1, node_name),
        rank_node=rank,
        rank_host=(rank // size).astype(np.int32),
        router=Levels([up, out], [down, into], [(rank // size).astype(np.int32), np.zeros(count, np.int32)]),
        startup_s=costs.startup_s,
        reduce_s_per_byte=costs.reduce_s_per_byte,
        alike=True,
        period=size,
        summary=names.summary.format(count=count, size=size),
        **links.columns(),
    )


def rails(name: str, count: int, size: int, inside: Speed, outside: Speed, costs: Costs = FREE) -> Cluster:
    """``count`` hosts of ``size`` devices on a switch, and a NIC per device; the i-th NICs share the i-th rail."""
    ranks = count * size
    rank = np.arange(ranks, dtype=np.int32)
    host_node = ranks + rank // size
    rail_node = ranks + count + rank % size
    links = Links()
    up = links.add(rank, host_node, inside.bandwidth, inside.latency_s / 2)
    down = links.add(host_node, rank, inside.bandwidth, inside.latency_s / 2)
    rail_up = links.add(rank, rail_node, outside.bandwidth, outside.latency_s / 2)
    rail_down = links.add(rail_node, rank, outside.bandwidth, outside.latency_s / 2)

    def node_name(i: int) -> str:
        if i < ranks:
            return f"h{i // size}.gpu{i % size}"
        return f"h{i - ranks}.nvswitch" if i < ranks + count else f"rail{i - ranks - count}"

    return Cluster(
        name=name,
        node_names=Names(ranks + count + size, node_name),
        rank_node=rank,
        rank_host=(rank // size).astype(np.int32),
        router=Rails(size, up, down, rail_up, rail_down),
        startup_s=costs.startup_s,
        reduce_s_per_byte=costs.reduce_s_per_byte,
        alike=True,
        period=size,
        summary=f"{count} hosts of {size} GPUs on an NVSwitch, {size} rails",
        **links.columns(),
    )


def fat_tree(name: str, ports: int, speed: Speed, costs: Costs = FREE) -> Cluster:
    """A fat tree of switches with ``ports`` ports each: ports^3 / 4 ranks, full bandwidth everywhere."""
    if ports < 2 or ports % 2:
        raise UsageError(f"a fat tree has switches with an even number of ports, not {ports}", got=ports)
    half = ports // 2
    ranks, switches = ports * half * half, ports * half
    rank = np.arange(ranks, dtype=np.int32)
    lower, port = np.divmod(np.arange(switches * half, dtype=np.int32), half)
    edge, aggregation, core = ranks, ranks + switches, ranks + 2 * switches
    links = Links()
    cost = (speed.bandwidth, speed.latency_s)
    host_up = links.add(rank, edge + rank // half, *cost)
    host_down = links.add(edge + rank // half, rank, *cost)
    in_pod, at_core = aggregation + lower // half * half + port, core + lower % half * half + port
    tables = [
        links.add(edge + lower, in_pod, *cost),
        links.add(in_pod, edge + lower, *cost),
        links.add(aggregation + lower, at_core, *cost),
        links.add(at_core, aggregation + lower, *cost),
    ]

    def node_name(i: int) -> str:
        for word, first in (("core", core), ("aggregation", aggregation), ("edge", edge)):
            if i >= first:
                return f"{word}{i - first}"
        return f"d{i}"

    return Cluster(
        name=name,
        node_names=Names(core + half * half, node_name),
        rank_node=rank,
        rank_host=rank,
        router=FatTree(half, host_up, host_down, *(table.reshape(switches, half) for table in tables)),
        startup_s=costs.startup_s,
        reduce_s_per_byte=costs.reduce_s_per_byte,
        alike=True,
        period=half * half,
        summary=f"{ranks} devices under a fat tree of {2 * switches + half * half} switches with {ports} ports",
        **links.columns(),
    )
