"""Simulating one schedule: the fast engine where it is exact, the event engine elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from farandole.cluster.model import Cluster
from farandole.collectives import collective
from farandole.errors import LengthError, UsageError
from farandole.layout import even_counts, layout, split
from farandole.schedule import Schedule
from farandole.simulate import events, path
from farandole.simulate.pattern import Floats, Pattern, carried, grouped, network
from farandole.simulate.result import Simulation, conclude
from farandole.simulate.rounds import Overlap, walk
from farandole.simulate.settings import Settings
from farandole.simulate.tracing import trace_events, trace_rounds


def simulate(
    schedule: Schedule,
    cluster: Cluster,
    size_bytes: int,
    *,
    settings: Settings | None = None,
    itemsize: int = 4,
    trace: bool = False,
    engine: str = "",
) -> Simulation:
    """Predict how long ``schedule`` takes for a buffer of ``size_bytes`` on ``cluster``.

    The buffer is the whole one, as in :func:`farandole.cost.price`, its elements of ``itemsize`` bytes. A world
    smaller than the cluster uses its first ranks. ``trace`` keeps what happened when; ``engine`` forces
    ``rounds`` (which raises Overlap where it cannot be exact) or ``events``. The cost per message is the cluster's.

    Raises LengthError unless the size is a whole number of elements, UsageError for a world that does not fit.

    >>> from farandole.algorithms import build
    >>> from farandole.cluster import parse as cluster
    >>> round(simulate(build("all_reduce", "ring", 4), cluster("switch:4@1GB/s,2us"), 4_000_000).time_s, 9)
    0.006012
    """
    if schedule.ranks > cluster.ranks:
        raise UsageError(
            f"{schedule.name or 'the schedule'} is for {schedule.ranks} ranks, but {cluster.name} has {cluster.ranks}",
            expected=schedule.ranks,
            got=cluster.ranks,
        )
    cluster = cluster.first(schedule.ranks)
    chosen = replace(settings or Settings(), startup_s=cluster.startup_s)
    chosen.check()
    begin = chosen.begin(cluster.ranks)
    parts = _slice_elements(size_bytes, chosen.slices, itemsize)
    bounds = [_chunk_bounds(schedule, part, itemsize) for part in parts]
    net = network(cluster)
    groups = list(grouped(net, schedule.rounds, bounds[0]))
    told = (schedule.name, schedule.collective, len(schedule.rounds), schedule.transfers, size_bytes, cluster)
    if engine != "events" and chosen.slices == 1:
        try:
            stretches, end = walk(net, groups, begin, chosen, skip=not trace and chosen.jitter_s == 0.0)
        except Overlap:
            if engine == "rounds":
                raise
        else:
            kept = trace_rounds(net, schedule, size_bytes, stretches, chosen) if trace else None
            hops = path.through_rounds(net, stretches, end, chosen)
            return conclude(*told, end, carried(net, groups), hops, "rounds", kept)
    patterns = [p for p, repeat in groups for _ in range(repeat)]
    transfer_bytes = _transfer_bytes(schedule, bounds)
    by_message = [_by_message(patterns, column) for column in transfer_bytes]
    line = events.run(net, patterns, by_message[0], by_message[1], chosen)
    end = begin.copy()
    for s in range(chosen.slices):
        np.maximum.at(end, line.plan.src, line.drained[s])
        np.maximum.at(end, line.plan.dst, line.done[s])
    kept = trace_events(net, schedule, size_bytes, patterns, line, by_message[1], transfer_bytes) if trace else None
    link_bytes = np.zeros(net.none + 1)
    for p, size in zip(
        patterns,
        np.split(by_message[0].sum(axis=0), np.cumsum([len(p) for p in patterns], dtype=np.int64)),
        strict=False,
    ):
        link_bytes += p.link_bytes(net.none, size)
    return conclude(*told, end, link_bytes, path.through_events(net, patterns, line), "events", kept)


def _by_message(patterns: Sequence[Pattern], values: Floats) -> Floats:
    """The sums by message of values by transfer, of all rounds: shape (slices, transfers) to (slices, messages)."""
    parts = np.split(values, np.cumsum([len(p.message) for p in patterns], dtype=np.int64)[:-1], axis=1)
    folded = [p.folded(part) for p, part in zip(patterns, parts, strict=bool(patterns))]
    return np.concatenate(folded, axis=1) if folded else values


def _slice_elements(size_bytes: int, slices: int, itemsize: int) -> list[int]:
    if size_bytes < 0 or size_bytes % itemsize:
        raise LengthError(
            f"a buffer of {size_bytes} bytes is not a whole number of elements of {itemsize} bytes",
            expected=itemsize,
            got=size_bytes,
        )
    return [int(part) for part in np.diff(split(size_bytes // itemsize, slices))]


def _chunk_bounds(schedule: Schedule, elements: int, itemsize: int) -> Floats:
    """At which byte each chunk begins, and the end: shape (chunks + 1,)."""
    what = collective(schedule.collective)
    counts = even_counts(what, schedule.ranks, elements if what.moves_data else 0)
    length = layout(what, schedule.ranks, schedule.chunks, counts, itemsize=itemsize).length
    return np.concatenate([[0.0], np.cumsum(length * float(itemsize))])


def _transfer_bytes(schedule: Schedule, bounds: Sequence[Floats]) -> tuple[Floats, Floats]:
    """The bytes of each transfer, and those of them that are reduced: shape (slices, transfers) both."""
    table = schedule.columns()
    first, last = table["chunk"], table["chunk"] + table["count"]
    sizes = np.array([bound[last] - bound[first] for bound in bounds])
    return sizes, sizes * table["reduce"]
