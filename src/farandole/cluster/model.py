"""Clusters: nodes, directed links between them, and which node each rank sits on.

The rules of the model:

- A *node* is anything that a link can end at: a device, a NIC, a switch. A rank sits on one node.
- A *link* goes one way, with a bandwidth in bytes per second and a latency in seconds. What uses a *shared*
  link at the same time shares its bandwidth; a link that is not shared gives each user all of it.
- A *route* is the links that a transfer from one rank to another crosses, found by the cluster's router.
- The cluster also says what a rank pays: ``startup_s`` for each message that it posts, and
  ``reduce_s_per_byte`` for each byte that it reduces.

Columns rather than one object per link, so that a cluster of 100,000 ranks is a few arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from farandole.errors import UnknownNameError, UsageError

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Routes = NDArray[np.int32]
Longs = NDArray[np.int64]


class Router(Protocol):
    """What finds routes: ``routes`` takes two int arrays of ranks, of shape (m,).

    The result has shape (m, width): the numbers of the links crossed, in order, -1 in the places left over.
    """

    def routes(self, src: Ints, dst: Ints) -> Routes:
        """The links from each rank in ``src`` to the one beside it in ``dst``."""
        ...


@dataclass(frozen=True, slots=True)
class Link:
    """One directed link, for reading and writing a cluster link by link."""

    src: str
    dst: str
    bandwidth: float
    latency_s: float = 0.0
    shared: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """A cluster of ``ranks`` ranks.

    ``node_names`` has one entry per node, ``rank_node`` (shape (ranks,)) the node of each rank, ``rank_host``
    (shape (ranks,)) the number of its host. The columns ``link_src``, ``link_dst`` (nodes), ``bandwidth``
    (bytes per second), ``latency_s``, ``shared`` and ``link_kind`` have one entry per link.

    ``alike`` says that the cluster looks the same from every rank, and that links of one kind are the same;
    ``period`` that it looks the same when every rank moves that many places on (0: it does not). With these,
    large worlds are priced from a few ranks' point of view.
    """

    name: str
    node_names: Sequence[str] = field(repr=False)
    rank_node: Ints = field(repr=False)
    rank_host: Ints = field(repr=False)
    link_src: Ints = field(repr=False)
    link_dst: Ints = field(repr=False)
    bandwidth: Floats = field(repr=False)
    latency_s: Floats = field(repr=False)
    shared: NDArray[np.bool_] = field(repr=False)
    link_kind: Ints = field(repr=False)
    router: Router = field(repr=False)
    startup_s: float = 0.0
    reduce_s_per_byte: float = 0.0
    alike: bool = False
    period: int = 0
    summary: str = ""

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.rank_node)

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return int(self.rank_host.max()) + 1

    @property
    def link_count(self) -> int:
        """How many directed links there are."""
        return len(self.bandwidth)

    def link_name(self, link: int) -> str:
        """A link's name: the nodes that it joins.

        >>> from farandole.cluster import parse
        >>> parse("ring:4@50GB/s").link_name(0)
        'd0->d1'
        """
        return f"{self.node_names[self.link_src[link]]}->{self.node_names[self.link_dst[link]]}"

    def links(self) -> list[Link]:
        """All links as values; long for a large cluster."""
        columns = (self.bandwidth.tolist(), self.latency_s.tolist(), self.shared.tolist())
        ends = zip(self.link_src.tolist(), self.link_dst.tolist(), strict=True)
        return [
            Link(self.node_names[src], self.node_names[dst], *values)
            for (src, dst), *values in zip(ends, *columns, strict=True)
        ]

    def routes(self, src: ArrayLike, dst: ArrayLike) -> Routes:
        """The links from ``src`` to ``dst``, shape (m, width), -1 in the places left over."""
        return self.router.routes(np.atleast_1d(np.asarray(src, np.int32)), np.atleast_1d(np.asarray(dst, np.int32)))

    def crossings(self, src: ArrayLike, dst: ArrayLike) -> Longs:
        """How many links of each kind lie between ``src`` and ``dst``, shape (m, kinds)."""
        from_, to = (np.atleast_1d(np.asarray(ranks, np.int32)) for ranks in (src, dst))
        kinds = int(self.link_kind.max(initial=-1)) + 1
        found = np.zeros((len(from_), kinds), np.int64)
        count = getattr(self.router, "hops", None)
        if count is not None:  # where routes are long, the router counts without listing them
            for links, hops in count(from_, to):
                found[:, self.link_kind[links[0]]] += hops
            return found
        for column in self.routes(from_, to).T:
            rows = np.flatnonzero(column >= 0)
            found[rows, self.link_kind[column[rows]]] += 1
        return found

    def route(self, src: int, dst: int) -> list[int]:
        """The links from one rank to another, in the order in which they are crossed."""
        return [int(link) for link in self.routes(src, dst)[0] if link >= 0]

    def find_links(self, text: str) -> list[int]:
        """The links of that name, or those between two ranks written ``3-4``, both ways.

        Raises UnknownNameError or UsageError where there is none.
        """
        first, dash, second = text.partition("-")
        if dash and first.isdecimal() and second.isdecimal():
            a, b = int(first), int(second)
            if a == b or max(a, b) >= self.ranks:
                raise UsageError(f"{text}: two different ranks below {self.ranks} are needed", got=text)
            return sorted({*self.route(a, b), *self.route(b, a)})
        found = [link for link in range(self.link_count) if self.link_name(link) == text]
        if not found:
            raise UnknownNameError("link", text, (self.link_name(link) for link in range(min(self.link_count, 4096))))
        return found

    def with_slow(self, text: str, factor: float) -> Cluster:
        """The same cluster with the bandwidth of some links multiplied by ``factor``: see ``find_links``."""
        if not 0 < factor < math.inf:
            raise UsageError(f"the factor of a slow link must be greater than 0, not {factor}", got=factor)
        bandwidth = self.bandwidth.copy()
        bandwidth[self.find_links(text)] *= factor
        return replace(self, bandwidth=bandwidth, alike=False, period=0, name=f"{self.name} slow {text}:{factor:g}")

    def with_costs(self, startup_s: float | None = None, reduce_s_per_byte: float | None = None) -> Cluster:
        """The same cluster with another cost per message or per byte reduced."""
        return replace(
            self,
            startup_s=self.startup_s if startup_s is None else startup_s,
            reduce_s_per_byte=self.reduce_s_per_byte if reduce_s_per_byte is None else reduce_s_per_byte,
        )

    def _repr_svg_(self) -> str | None:
        from farandole.cluster.draw import DRAWN, to_svg  # noqa: PLC0415 - pictures are made of clusters

        return to_svg(self) if len(self.node_names) <= DRAWN else None

    def first(self, ranks: int) -> Cluster:
        """The same cluster with only its first ``ranks`` ranks in use."""
        if not 1 <= ranks <= self.ranks:
            raise UsageError(f"{self.name} has {self.ranks} ranks, not {ranks}", expected=self.ranks, got=ranks)
        if ranks == self.ranks:
            return self
        return replace(self, rank_node=self.rank_node[:ranks], rank_host=self.rank_host[:ranks], alike=False, period=0)


class Links:
    """Collects the links of a cluster that is being built, block by block; a block is one kind of link."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Any, ...]] = []
        self._count = 0

    def add(
        self, src: ArrayLike, dst: ArrayLike, bandwidth: ArrayLike, latency_s: ArrayLike = 0.0, shared: bool = True
    ) -> Ints:
        """Add one link per entry, of nodes ``src`` to nodes ``dst``; the numbers of the links are returned."""
        given = (src, dst, bandwidth, latency_s, shared, len(self._blocks))
        columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(column)) for column in given))
        self._blocks.append(tuple(columns))
        first = self._count
        self._count += len(columns[0])
        return np.arange(first, self._count, dtype=np.int32)

    def columns(self) -> dict[str, Any]:
        """The columns of :class:`Cluster`, by name."""
        names = ("link_src", "link_dst", "bandwidth", "latency_s", "shared", "link_kind")
        dtypes = (np.int32, np.int32, np.float64, np.float64, np.bool_, np.int32)
        if not self._blocks:
            return {name: np.empty(0, dtype) for name, dtype in zip(names, dtypes, strict=True)}
        parts = zip(*self._blocks, strict=True)
        return {
            name: np.ascontiguousarray(np.concatenate(part), dtype)
            for name, dtype, part in zip(names, dtypes, parts, strict=True)
        }


@dataclass(frozen=True, slots=True)
class Names(Sequence[str]):
    """Node names made on demand, so that a large cluster holds no list of strings."""

    length: int
    function: Callable[[int], str]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.function(i) for i in range(*index.indices(self.length))]
        if not -self.length <= index < self.length:
            raise IndexError(index)
        return self.function(int(index) % self.length)
