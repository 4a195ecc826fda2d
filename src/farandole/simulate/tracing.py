"""Traces from what the engines found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from farandole import trace
from farandole.schedule import Schedule
from farandole.simulate.events import Timeline
from farandole.simulate.pattern import Floats, Network, Pattern
from farandole.simulate.rounds import Stretch, step
from farandole.simulate.settings import Settings
from farandole.trace import KINDS, Trace


def _ns(times: ArrayLike) -> NDArray[np.int64]:
    return np.rint(np.asarray(times) * 1e9).astype(np.int64)


def _assemble(
    schedule: Schedule, size_bytes: int, times: Mapping[str, Floats], sizes: Floats, reduced: Floats
) -> Trace:
    """``times`` has the columns posted, drained, arrived, done, and the cost of reducing; all are by transfer."""
    slices = len(sizes)
    table = {name: np.tile(column, slices) for name, column in schedule.columns().items()}
    number = np.repeat(np.arange(slices), schedule.transfers)
    flat = {name: column.ravel() for name, column in times.items()}
    folds = np.flatnonzero(reduced.ravel() > 0)
    every = np.arange(len(number))
    rows = np.concatenate([every, every, folds])
    parts: Sequence[tuple[str, str, Floats, Floats]] = (
        ("send", "src", flat["posted"], flat["drained"]),
        ("receive", "dst", flat["posted"], flat["arrived"]),
        ("reduce", "dst", (flat["done"] - flat["cost"])[folds], flat["done"][folds]),
    )
    ends = {"src": "dst", "dst": "src"}
    lengths = [len(start) for _, _, start, _ in parts]
    picks = (every, every, folds)
    return trace.make(
        schedule.name,
        schedule.collective,
        schedule.ranks,
        size_bytes,
        "simulated",
        root=schedule.root,
        rank=np.concatenate([table[who][pick] for (_, who, _, _), pick in zip(parts, picks, strict=True)]),
        peer=np.concatenate([table[ends[who]][pick] for (_, who, _, _), pick in zip(parts, picks, strict=True)]),
        kind=np.repeat([KINDS.index(kind) for kind, _, _, _ in parts], lengths),
        round=table["round"][rows],
        slice=number[rows],
        chunk=table["chunk"][rows],
        count=table["count"][rows],
        size_bytes=np.rint(sizes.ravel()[rows]),
        start_ns=_ns(np.concatenate([start for _, _, start, _ in parts])),
        end_ns=_ns(np.concatenate([end for _, _, _, end in parts])),
    )


def trace_rounds(
    net: Network, schedule: Schedule, size_bytes: int, stretches: Sequence[Stretch], settings: Settings
) -> Trace:
    """The trace of a run of the fast engine that skipped nothing; each round is worked out once more."""
    steps = [
        (step(net, stretch.pattern, begin, settings, stretch.first + i, None), stretch.pattern)
        for stretch in stretches
        for i, begin in enumerate(stretch.begins)
    ]
    names = ("posted", "drained", "arrived", "done")
    cost = net.cluster.reduce_s_per_byte

    def joined(parts: list[Floats]) -> Floats:
        return np.concatenate(parts)[None] if parts else np.empty((1, 0))

    times = {name: joined([getattr(times, name)[p.message] for times, p in steps]) for name in names}
    times["cost"] = joined([cost * p.reduced[p.message] for _, p in steps])
    sizes = joined([p.transfers.size for _, p in steps])
    reduced = joined([p.transfers.reduced for _, p in steps])
    return _assemble(schedule, size_bytes, times, sizes, reduced)


def trace_events(
    net: Network,
    schedule: Schedule,
    size_bytes: int,
    patterns: Sequence[Pattern],
    line: Timeline,
    reduced: Floats,
    transfer_bytes: tuple[Floats, Floats],
) -> Trace:
    """The trace of a run of the event engine; ``reduced`` is by message, ``transfer_bytes`` sizes and reduced."""
    first = np.cumsum([0, *(len(p) for p in patterns)])
    message = np.concatenate([p.message + start for p, start in zip(patterns, first, strict=False)] or [[]])
    pick = message.astype(np.intp)
    times = {name: getattr(line, name)[:, pick] for name in ("posted", "drained", "arrived", "done")}
    times["cost"] = reduced[:, pick] * net.cluster.reduce_s_per_byte
    return _assemble(schedule, size_bytes, times, *transfer_bytes)
