"""The parts of the player's page that know time and place: the trace, and the cluster's nodes and links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.cluster.model import Cluster
from farandole.errors import UsageError
from farandole.schedule import Ints, Schedule
from farandole.show.columns import column
from farandole.simulate.result import Simulation
from farandole.trace import KINDS, Trace
from farandole.units import format_size

MOST_EVENTS = 300_000
SHOWN_LINKS = 20

Columns = Mapping[str, NDArray[np.int64]]


def trace_part(
    schedule: Schedule, transfers: Mapping[str, Ints], traced: Trace | Simulation, shown_ranks: int
) -> dict[str, Any]:
    """The trace as the page reads it; ``transfers`` are those that the page holds, in order.

    Raises UsageError for a simulation without its trace, a trace of another world, and one that is too long.
    """
    simulation = traced if isinstance(traced, Simulation) else None
    trace = traced.trace if isinstance(traced, Simulation) else traced
    if trace is None:
        raise UsageError("this simulation has not kept its trace: simulate(..., trace=True) does")
    if (trace.ranks, trace.collective) != (schedule.ranks, schedule.collective):
        raise UsageError(
            f"this trace is of {trace.collective} on {trace.ranks} ranks, the schedule of {schedule.collective} on"
            f" {schedule.ranks} ranks",
            expected=(schedule.collective, schedule.ranks),
            got=(trace.collective, trace.ranks),
        )
    table = trace.columns
    keep = np.flatnonzero((table["rank"] < shown_ranks) & ((table["kind"] < 2) | (table["end_ns"] > table["start_ns"])))
    if len(keep) > MOST_EVENTS:
        raise UsageError(
            f"the trace has {len(keep):,} events, and a page holds at most {MOST_EVENTS:,}; show fewer ranks,"
            " or read the trace.json",
            expected=MOST_EVENTS,
            got=len(keep),
        )
    events: Columns = {name: values[keep] for name, values in table.items()}
    kinds = [kind for number, kind in enumerate(KINDS) if (events["kind"] == number).any()]
    place = np.array([kinds.index(kind) if kind in kinds else -1 for kind in KINDS])
    where = f" on {simulation.cluster.name}" if simulation else ""
    good = f", times good to {trace.uncertainty_ns} ns" if trace.uncertainty_ns else ""
    return {
        "kind": trace.source,
        "summary": f"{format_size(trace.size_bytes)}{where}{good}",
        "kinds": kinds,
        "total_ns": trace.time_ns,
        "events": {
            **{
                name: column(events[name]) for name in ("rank", "peer", "round", "chunk", "count", "start_ns", "end_ns")
            },
            "transfer": column(_transfer_of(transfers, events)),
            "kind": column(place[events["kind"]]),
        },
        "critical": _critical(simulation, events) if simulation else [],
        "links": [
            {"name": load.name, "bytes": round(load.bytes), "utilisation": load.utilisation}
            for load in (simulation.busiest(SHOWN_LINKS) if simulation else [])
        ],
    }


def _transfer_of(transfers: Mapping[str, Ints], events: Columns) -> NDArray[np.int64]:
    """For each event, the place of its transfer within its round, -1 for none; an event may be of a part of it."""
    sends = events["kind"] == KINDS.index("send")
    src = np.where(sends, events["rank"], events["peer"])
    dst = np.where(sends, events["peer"], events["rank"])
    size = 2 + max(int(values.max(initial=0)) for values in (*transfers.values(), *(src, dst, events["chunk"])))

    def pair(round_: Any, src: Any, dst: Any) -> NDArray[np.int64]:
        return np.asarray(((round_.astype(np.int64) * size + src) * size + dst) * size, np.int64)

    known_pair = pair(transfers["round"], transfers["src"], transfers["dst"])
    if not len(known_pair):
        return np.full(len(src), -1)
    known, first = np.unique(known_pair + transfers["chunk"], return_index=True)
    wanted = pair(events["round"], src, dst)
    at = first[np.maximum(np.searchsorted(known, wanted + events["chunk"], side="right") - 1, 0)]
    inside = (known_pair[at] == wanted) & (transfers["chunk"][at] <= events["chunk"])
    inside &= events["chunk"] < transfers["chunk"][at] + transfers["count"][at]
    return np.where(inside & (events["peer"] >= 0), at - np.searchsorted(transfers["round"], events["round"]), -1)


def _critical(simulation: Simulation, events: Columns) -> list[int]:
    """The events on the critical path: of each hop, what its receiver and its reducer did in that time."""
    found: list[int] = []
    start, end = events["start_ns"], events["end_ns"]
    kinds = {"message": KINDS.index("receive"), "send": KINDS.index("send"), "reduce": KINDS.index("reduce")}
    for hop in simulation.hops:
        if hop.kind not in kinds:
            continue
        who, whom = (hop.peer, hop.rank) if hop.kind == "message" else (hop.rank, hop.peer)
        mine = (events["rank"] == who) & (events["peer"] == whom) & (events["round"] == hop.first)
        inside = (start >= round(hop.start_s * 1e9) - 1) & (end <= round(hop.end_s * 1e9) + 1)
        kind = events["kind"] == kinds[hop.kind]
        if hop.kind == "message":
            kind |= events["kind"] == kinds["reduce"]
        found.extend(np.flatnonzero(mine & inside & kind).tolist())
    return found


def cluster_part(schedule: Schedule, cluster: Cluster, simulation: Simulation | None) -> dict[str, Any]:
    """The ranks' nodes, and the links that the schedule's transfers cross, with the nodes that these join."""
    cluster = cluster.first(schedule.ranks)
    table = schedule.columns()
    ends = np.stack([table["src"], table["dst"]])
    exists = ((ends >= 0) & (ends < schedule.ranks)).all(axis=0) & (ends[0] != ends[1])
    pairs = np.unique(ends[:, exists], axis=1)
    routes = cluster.routes(pairs[0], pairs[1])
    links = np.unique(routes[routes >= 0])
    link_ends = np.stack([cluster.link_src[links], cluster.link_dst[links]])
    nodes = np.unique(np.concatenate([cluster.rank_node, link_ends.ravel()]))
    renumbered = [[int(np.searchsorted(links, link)) for link in row if link >= 0] for row in routes.tolist()]
    return {
        "name": cluster.name,
        "nodes": [cluster.node_names[int(node)] for node in nodes],
        "rank_node": np.searchsorted(nodes, cluster.rank_node).tolist(),
        "rank_host": cluster.rank_host.tolist(),
        "links": {
            "src": np.searchsorted(nodes, link_ends[0]).tolist(),
            "dst": np.searchsorted(nodes, link_ends[1]).tolist(),
            "utilisation": [float(share) for share in simulation.utilisation()[links]] if simulation else None,
        },
        "routes": {"src": pairs[0].tolist(), "dst": pairs[1].tolist(), "links": renumbered},
    }
