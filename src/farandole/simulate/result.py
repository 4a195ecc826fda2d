"""What a simulation says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.bandwidth import bus_factor
from farandole.cluster.model import Cluster
from farandole.notebook import shown_by
from farandole.simulate.path import Hop, in_words
from farandole.trace import Trace


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """What one link carried: ``utilisation`` is the share of the time that it would need at full speed."""

    name: str
    bytes: float
    utilisation: float


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """The prediction for one call of a collective on a cluster.

    ``time_s`` is from the start of the call (of the first rank, where some are late) to the end of the last
    rank; ``algbw`` and ``busbw`` are bytes per second as nccl-tests defines them. ``link_bytes`` has shape
    (links,). ``engine`` says which engine did the work (``rounds``, ``events`` or ``symmetry``), ``note`` what is
    not exact about it, if anything.
    """

    name: str
    collective: str
    ranks: int
    size_bytes: int
    cluster: Cluster = field(repr=False)
    time_s: float
    algbw: float
    busbw: float
    rounds: int
    transfers: int
    engine: str
    rank_end_s: NDArray[np.float64] = field(repr=False)
    link_bytes: NDArray[np.float64] = field(repr=False)
    hops: tuple[Hop, ...] = field(repr=False)
    trace: Trace | None = field(default=None, repr=False)
    note: str = ""

    _repr_html_ = shown_by("simulation_html")

    def utilisation(self) -> NDArray[np.float64]:
        """For each link the share of the time that it would need at full speed: shape (links,)."""
        if self.time_s == 0:
            return np.zeros(len(self.link_bytes))
        return self.link_bytes / (self.cluster.bandwidth * self.time_s)

    def busiest(self, count: int = 10) -> list[LinkLoad]:
        """The links that are used most of the time, first the busiest; links that carry nothing are left out."""
        share = self.utilisation()
        order = np.argsort(-share, kind="stable")[:count]
        return [
            LinkLoad(self.cluster.link_name(int(i)), float(self.link_bytes[i]), float(share[i]))
            for i in order
            if self.link_bytes[i] > 0
        ]

    @property
    def bottleneck(self) -> str:
        """The busiest link's name, or what else the time goes into, where the links are idle most of it."""
        busiest = self.busiest(1)
        parts = self.parts()
        most = max(parts, key=lambda name: parts[name], default="")
        if not busiest or (most and most != "transfer" and busiest[0].utilisation < 0.5):
            return most
        return busiest[0].name

    def parts(self) -> dict[str, float]:
        """What the critical path's time goes into, in seconds."""
        parts = {
            "start-up": sum(hop.startup_s for hop in self.hops),
            "transfer": sum(hop.transfer_s for hop in self.hops),
            "latency": sum(hop.latency_s for hop in self.hops),
            "reduction": sum(hop.reduce_s for hop in self.hops),
            "late start": sum(hop.end_s - hop.start_s for hop in self.hops if hop.kind == "late"),
        }
        return {name: value for name, value in parts.items() if value > 0}

    def critical_path(self) -> list[str]:
        """The chain that the time is the sum of, in words."""
        return in_words(self.hops)

    def to_dict(self, links: int = 20) -> dict[str, Any]:
        """The result as plain values, for JSON; the ``links`` busiest links are listed."""
        return {
            "kind": "simulated",
            "algorithm": self.name,
            "collective": self.collective,
            "ranks": self.ranks,
            "size_bytes": self.size_bytes,
            "cluster": self.cluster.name,
            "time_s": self.time_s,
            "algbw": self.algbw,
            "busbw": self.busbw,
            "rounds": self.rounds,
            "transfers": self.transfers,
            "engine": self.engine,
            "note": self.note,
            "links": [
                {"name": load.name, "bytes": load.bytes, "utilisation": load.utilisation}
                for load in self.busiest(links)
            ],
            "bottleneck": self.bottleneck,
            "parts_s": self.parts(),
            "critical_path": self.critical_path(),
        }


def conclude(
    name: str,
    collective_name: str,
    rounds: int,
    transfers: int,
    size_bytes: int,
    cluster: Cluster,
    end: NDArray[np.float64],
    carried: NDArray[np.float64],
    hops: Sequence[Hop],
    engine: str,
    kept: Trace | None,
    note: str = "",
) -> Simulation:
    """The result from when each rank was done (shape (ranks,)) and the bytes of each link (shape (links + 1,))."""
    time_s = float(end.max())
    algbw = size_bytes / time_s if time_s else 0.0
    return Simulation(
        name=name,
        collective=collective_name,
        ranks=cluster.ranks,
        size_bytes=size_bytes,
        cluster=cluster,
        time_s=time_s,
        algbw=algbw,
        busbw=algbw * bus_factor(collective_name, cluster.ranks),
        rounds=rounds,
        transfers=transfers,
        engine=engine,
        rank_end_s=end,
        link_bytes=carried[:-1],
        hops=tuple(hops),
        trace=kept,
        note=note,
    )
