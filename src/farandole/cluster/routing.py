"""Routers: which links a transfer crosses, for each shape of network, for many pairs of ranks at once."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from farandole.cluster.model import Floats, Ints, Longs, Routes
from farandole.errors import UsageError


def trimmed(columns: Sequence[Ints]) -> Routes:
    """Columns side by side, shape (m, width), with each row's links moved to the left of its gaps (-1)."""
    table = np.stack(np.broadcast_arrays(*columns), axis=1).astype(np.int32)
    order = np.argsort(table < 0, axis=1, kind="stable")
    table = np.take_along_axis(table, order, axis=1)
    used = int((table >= 0).sum(axis=1).max(initial=0))
    return table[:, :used]


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """A tree of switches: up from the sender as far as needed, down to the receiver.

    ``up[k][i]`` is the link upwards from the i-th node of level k (level 0 are the ranks), ``down[k][i]`` the
    link down to it; ``above[k][i]`` is the node of level k + 1 that it hangs under.
    """

    up: Sequence[Ints]
    down: Sequence[Ints]
    above: Sequence[Ints]

    def routes(self, src: Ints, dst: Ints) -> Routes:
        """Up while the two are under different nodes, then down."""
        ups: list[Ints] = []
        downs: list[Ints] = []
        here, there = src, dst
        for up, down, above in zip(self.up, self.down, self.above, strict=True):
            apart = here != there
            ups.append(np.where(apart, up[here], -1).astype(np.int32))
            downs.append(np.where(apart, down[there], -1).astype(np.int32))
            here, there = above[here], above[there]
        return trimmed([*ups, *reversed(downs)])


@dataclass(frozen=True, slots=True, eq=False)
class Rails:
    """Hosts of ``size`` devices on one switch each, and one network (rail) per place in the host.

    Inside a host a transfer goes over the host's switch. To another host it takes the rail of the receiver's
    place; where the sender has another place, it first crosses to the device of that place in its own host.
    """

    size: int
    up: Ints
    down: Ints
    rail_up: Ints
    rail_down: Ints

    def routes(self, src: Ints, dst: Ints) -> Routes:
        """Host switch if needed, then the rail if needed."""
        relay = src - src % self.size + dst % self.size
        moves = relay != src
        leaves = src // self.size != dst // self.size
        return trimmed(
            [
                np.where(moves, self.up[src], -1),
                np.where(moves, self.down[relay], -1),
                np.where(leaves, self.rail_up[relay], -1),
                np.where(leaves, self.rail_down[dst], -1),
            ]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Mesh:
    """A link from every rank to every other: number ``src * ranks + dst``, leaving out those to itself."""

    ranks: int

    def routes(self, src: Ints, dst: Ints) -> Routes:
        """The one link between the two."""
        number = src.astype(np.int64) * (self.ranks - 1) + dst - (dst > src)
        return trimmed([np.where(src == dst, -1, number).astype(np.int32)])


@dataclass(frozen=True, slots=True, eq=False)
class Torus:
    """Dimension by dimension, the shorter way around each ring (upwards where both are as long).

    ``forward[k][r]`` and ``backward[k][r]`` are the links that leave rank r along side k; the rank's number
    counts along the first side first.
    """

    sides: tuple[int, ...]
    forward: Sequence[Ints]
    backward: Sequence[Ints]

    def hops(self, src: Ints, dst: Ints) -> Iterator[tuple[Ints, Longs]]:
        """How many links of each side and direction lie on the way; with each count, the links of that kind."""
        stride = 1
        for side, forward, backward in zip(self.sides, self.forward, self.backward, strict=True):
            ahead = (dst.astype(np.int64) // stride - src // stride) % side
            upwards = ahead <= side - ahead
            if side > 1:
                yield forward, np.where(upwards, ahead, 0)
                yield backward, np.where(upwards, 0, side - ahead)
            stride *= side

    def routes(self, src: Ints, dst: Ints) -> Routes:
        """One column per hop, side after side."""
        here, hops = src.astype(np.int64), np.zeros(len(src), np.int64)
        pieces: list[tuple[Longs, Longs, Ints]] = []  # rows, columns, links
        stride = 1
        for side, forward, backward in zip(self.sides, self.forward, self.backward, strict=True):
            place = here // stride % side
            ahead = (dst // stride - place) % side
            upwards = ahead <= side - ahead
            left = np.where(upwards, ahead, side - ahead)
            row = np.repeat(np.arange(len(src)), left)
            step = np.arange(len(row)) - np.repeat(np.cumsum(left) - left, left)
            up, begin = upwards[row], place[row]
            at = here[row] + ((begin + np.where(up, step, -step)) % side - begin) * stride
            pieces.append((row, hops[row] + step, np.where(up, forward[at], backward[at])))
            here = here + (dst // stride % side - place) * stride
            hops = hops + left
            stride *= side
        table = np.full((len(src), int(hops.max(initial=0))), -1, np.int32)
        for row, column, link in pieces:
            table[row, column] = link
        return table


@dataclass(frozen=True, slots=True, eq=False)
class FatTree:
    """A fat tree of switches with ``k`` ports (Leiserson 1985; Al-Fares, SIGCOMM 2008): k pods, k/2 ranks an edge.

    The way up is chosen by the receiver's number, so that all transfers to one rank take one way and those to
    neighbours take different ways. ``host_up`` and ``host_down`` have shape (ranks,), the tables of edge and core
    links shape (switches of the lower level, half): by switch and by port upwards.
    """

    half: int
    host_up: Ints
    host_down: Ints
    edge_up: Ints
    edge_down: Ints
    core_up: Ints
    core_down: Ints

    def routes(self, src: Ints, dst: Ints) -> Routes:
        """Edge, then aggregation, then core, as far up as needed."""
        half = self.half
        edge_of_src, edge_of_dst = src // half, dst // half
        pod_of_src, pod_of_dst = edge_of_src // half, edge_of_dst // half
        edges, pods, same = edge_of_src != edge_of_dst, pod_of_src != pod_of_dst, src == dst
        port, core = dst % half, edge_of_dst % half
        aggregation_up, aggregation_down = pod_of_src * half + port, pod_of_dst * half + port
        return trimmed(
            [
                np.where(same, -1, self.host_up[src]),
                np.where(edges, self.edge_up[edge_of_src, port], -1),
                np.where(pods, self.core_up[aggregation_up, core], -1),
                np.where(pods, self.core_down[aggregation_down, core], -1),
                np.where(edges, self.edge_down[edge_of_dst, port], -1),
                np.where(same, -1, self.host_down[dst]),
            ]
        )


@dataclass(frozen=True, slots=True, eq=False)
class ShortestPaths:
    """Any graph: the fewest links, then the least latency, then the most bandwidth, then the lowest numbers.

    Paths are found by Dijkstra's algorithm from one rank at a time, when first asked for, and kept.
    """

    rank_node: Ints
    link_src: Ints
    link_dst: Ints
    bandwidth: Floats
    latency_s: Floats
    names: Sequence[str] = field(repr=False)
    _paths: dict[int, dict[int, tuple[int, ...]]] = field(default_factory=dict, repr=False)

    def routes(self, src: Ints, dst: Ints) -> Routes:
        """Look up each pair."""
        found = [self._path(int(s), int(d)) for s, d in zip(src, dst, strict=True)]
        width = max(map(len, found), default=0)
        table = np.full((len(found), width), -1, np.int32)
        for row, links in zip(table, found, strict=True):
            row[: len(links)] = links
        return table

    def _path(self, src: int, dst: int) -> tuple[int, ...]:
        paths = self._paths.get(src)
        if paths is None:
            paths = self._paths[src] = self._from(int(self.rank_node[src]))
        goal = int(self.rank_node[dst])
        if goal not in paths:
            raise UsageError(
                f"no links lead from rank {src} (on {self.names[self.rank_node[src]]}) to rank {dst} (on"
                f" {self.names[goal]}); links go one way, so both directions are needed",
                src=src,
                dst=dst,
            )
        return paths[goal]

    def _from(self, start: int) -> dict[int, tuple[int, ...]]:
        out: dict[int, list[int]] = {}
        for link, node in enumerate(self.link_src.tolist()):
            out.setdefault(node, []).append(link)
        best: dict[int, tuple[int, ...]] = {}
        heap: list[tuple[int, float, float, tuple[int, ...], int]] = [(0, 0.0, 0.0, (), start)]
        while heap:
            hops, latency, slowness, path, node = heapq.heappop(heap)
            if node in best:
                continue
            best[node] = path
            for link in out.get(node, ()):
                to = int(self.link_dst[link])
                if to not in best:
                    slower = max(slowness, 1 / float(self.bandwidth[link]))
                    further = latency + float(self.latency_s[link])
                    heapq.heappush(heap, (hops + 1, further, slower, (*path, link), to))
        return best
