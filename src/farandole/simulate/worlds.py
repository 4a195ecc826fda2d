"""Simulating an algorithm by name, on worlds of any size."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from farandole.algorithms.registry import Algorithm, Option, find, parse, typed
from farandole.cluster.model import Cluster
from farandole.collectives import Blocks, collective
from farandole.errors import UnsupportedError
from farandole.schedule import Round
from farandole.simulate import events, large, path
from farandole.simulate.fold import folding
from farandole.simulate.pattern import Floats, Network, Pattern, carried, grouped, network
from farandole.simulate.result import Simulation, conclude
from farandole.simulate.rounds import Overlap, walk
from farandole.simulate.settings import Settings
from farandole.simulate.short import Everyone, Part, Same, parts_of
from farandole.simulate.single import simulate

LISTED = 1 << 22  # transfers: more than that are priced without a list where that is possible
LISTED_RANKS = 4096  # larger worlds are taken round by round from the algorithm's generator
LISTED_ROUND = 1 << 16  # transfers in a round between all pairs: more than that are priced by symmetry
EVENTS = 1 << 22  # flows, times those beside them, times links: with less, rounds that overlap go event by event
BESIDE = 1 << 10  # what a message costs by itself, in flows beside it
QUEUED = (
    "not exact: messages of different rounds that meet on a link are taken to use it one after another, and those of"
    " one round to start together; with fair sharing it can take half as long again"
)


def predict(
    collective_name: str,
    algorithm: str,
    cluster: Cluster,
    size_bytes: int,
    *,
    ranks: int | None = None,
    root: int = 0,
    settings: Settings | None = None,
    itemsize: int = 4,
    trace: bool = False,
) -> Simulation:
    """Predict an algorithm, written ``name:option=value,...``, on all ranks of ``cluster`` or the first ``ranks``.

    As :func:`simulate`, but worlds too large to list their transfers are priced by treating equal rounds once;
    the result's ``note`` says what is then not exact, if anything. Raises UnsupportedError where it cannot be done.
    """
    cluster = cluster.first(ranks or cluster.ranks)
    name, texts = parse(algorithm)
    entry = find(collective_name, name)
    options = typed(entry, texts)
    chosen = settings or Settings()
    n = cluster.ranks
    needs_list = trace or chosen.slices > 1 or chosen.jitter_s > 0
    parts = None if needs_list else parts_of(collective_name, name, n, options)
    if parts is not None and (n > LISTED_RANKS or _too_long(collective_name, parts, cluster, chosen)):
        return _in_short(algorithm, entry, cluster, size_bytes, chosen, parts, options)
    if n <= LISTED_RANKS or needs_list:
        schedule = entry.build(n, root, options)
        return simulate(schedule, cluster, size_bytes, settings=chosen, itemsize=itemsize, trace=trace)
    return _streamed(algorithm, entry, cluster, size_bytes, root, chosen, options)


def _too_long(collective_name: str, parts: Sequence[Part], cluster: Cluster, settings: Settings) -> bool:
    n = cluster.ranks
    if any(isinstance(part, Everyone) for part in parts):
        return n * (n - 1) > (LISTED_ROUND if cluster.alike and not settings.delays else LISTED)
    one_by_one = collective(collective_name).blocks is Blocks.PER_PAIR  # chunks from different places: no runs of them
    return sum(_transfers(part, n, one_by_one) for part in parts) > LISTED


def _transfers(part: Part, n: int, one_by_one: bool) -> int:
    if isinstance(part, Same):
        return (int(part.round.count.sum()) if one_by_one else len(part.round)) * part.repeat
    if isinstance(part, Everyone):
        return n * (n - 1)
    return n * len(part.distances)


def _chunk_bytes(entry: Algorithm, cluster: Cluster, size_bytes: int, options: Mapping[str, Option]) -> float:
    """The bytes in a chunk, all chunks taken to be equal."""
    what = collective(entry.collective)
    chunks = entry.chunk_rule(cluster.ranks, **options)
    whole = size_bytes * (cluster.ranks if what.blocks is Blocks.PER_PAIR else 1)
    return whole / chunks if what.moves_data else 0.0


def _in_short(
    label: str,
    entry: Algorithm,
    cluster: Cluster,
    size_bytes: int,
    settings: Settings,
    parts: Sequence[Part],
    options: Mapping[str, Option],
) -> Simulation:
    chunk = _chunk_bytes(entry, cluster, size_bytes, options)
    chosen = replace(settings, startup_s=cluster.startup_s)
    same = [part for part in parts if isinstance(part, Same)]
    if same:
        folded = None if settings.delays else folding(cluster, [part.round for part in same])
        net = network(cluster, lists=False, fold=folded)
        return _walked(label, entry, net, size_bytes, chosen, lambda: large.groups(net, same, chunk))
    if chosen.delays:
        raise UnsupportedError(
            f"{entry.name} on {cluster.ranks:,} ranks is priced by symmetry, which late ranks break: use fewer ranks"
        )
    prices = [
        large.everyone(cluster, part, chunk) if isinstance(part, Everyone) else large.shifts(cluster, part, chunk)
        for part in parts
        if not isinstance(part, Same)
    ]
    end = np.full(cluster.ranks, sum(price.time_s for price in prices))
    link_bytes = np.append(sum((price.link_bytes for price in prices), np.zeros(cluster.link_count)), 0.0)
    note = "; ".join(dict.fromkeys(price.note for price in prices if price.note))
    rounds, transfers = sum(p.rounds for p in prices), sum(p.transfers for p in prices)
    return conclude(
        label, entry.collective, rounds, transfers, size_bytes, cluster, end, link_bytes, [], "symmetry", None, note
    )


def _streamed(
    label: str,
    entry: Algorithm,
    cluster: Cluster,
    size_bytes: int,
    root: int,
    settings: Settings,
    options: Mapping[str, Option],
) -> Simulation:
    """Round by round from the generator, of which nothing but the patterns is kept."""
    net = network(cluster, lists=False)
    chosen = replace(settings, startup_s=cluster.startup_s)
    chunk = _chunk_bytes(entry, cluster, size_bytes, options)
    return _walked(
        label,
        entry,
        net,
        size_bytes,
        chosen,
        lambda: grouped(net, _stream(entry, cluster.ranks, root, options), chunk),
    )


def _walked(
    label: str,
    entry: Algorithm,
    net: Network,
    size_bytes: int,
    settings: Settings,
    groups: Callable[[], Iterable[tuple[Pattern, int]]],
) -> Simulation:
    """Exactly where that can be; where rounds of very many messages overlap on links, with these queueing there."""
    begin = np.zeros(net.ranks) if net.fold else settings.begin(net.ranks)
    try:
        note = ""
        stretches, end = walk(net, groups(), begin, settings)
    except Overlap:
        if net.fold is not None and _is_short(groups()):
            return _event_by_event(label, entry, net, size_bytes, settings, groups())
        note = QUEUED
        stretches, end = walk(net, groups(), begin, settings, queue=True)
    hops = [] if note else path.through_rounds(net, stretches, end, settings)
    rounds = sum(stretch.repeat for stretch in stretches)
    transfers = sum(len(stretch.pattern) * stretch.repeat for stretch in stretches) * (net.cluster.ranks // net.ranks)
    link_bytes = carried(net, [(stretch.pattern, stretch.repeat) for stretch in stretches])
    end, link_bytes = _unfolded(net, end, link_bytes)
    return conclude(
        label, entry.collective, rounds, transfers, size_bytes, net.cluster, end, link_bytes, hops, "rounds", None, note
    )


def _unfolded(net: Network, end: Floats, link_bytes: Floats) -> tuple[Floats, Floats]:
    """When each rank is done, and the bytes of each link, of all for whom others stood."""
    if net.fold is None:
        return end, link_bytes
    return np.tile(end, net.cluster.ranks // net.ranks), np.append(link_bytes[net.fold.link], 0.0)


def _is_short(groups: Iterable[tuple[Pattern, int]]) -> bool:
    """Whether the event engine has so little to do that it takes seconds only."""
    work = 0
    for pattern, repeat in groups:
        work += repeat * len(pattern) * (len(pattern) + BESIDE) * max(pattern.routes.shape[1], 1)
        if work > EVENTS:
            return False
    return True


def _event_by_event(
    label: str,
    entry: Algorithm,
    net: Network,
    size_bytes: int,
    settings: Settings,
    groups: Iterable[tuple[Pattern, int]],
) -> Simulation:
    """A folded world by the event engine, which is exact."""
    patterns = [pattern for pattern, repeat in groups for _ in range(repeat)]
    sizes, reduced = (np.concatenate([getattr(p, name) for p in patterns]) for name in ("size", "reduced"))
    line = events.run(net, patterns, sizes[None], reduced[None], settings)
    end = np.zeros(net.ranks)
    np.maximum.at(end, line.plan.src, line.drained[0])
    np.maximum.at(end, line.plan.dst, line.done[0])
    hops = path.through_events(net, patterns, line)
    transfers = len(sizes) * (net.cluster.ranks // net.ranks)
    end, link_bytes = _unfolded(net, end, carried(net, [(pattern, 1) for pattern in patterns]))
    told = (label, entry.collective, len(patterns), transfers, size_bytes, net.cluster)
    return conclude(*told, end, link_bytes, hops, "events", None)


def _stream(entry: Algorithm, ranks: int, root: int, options: Mapping[str, Option]) -> Iterator[Round]:
    """The rounds as the algorithm yields them."""
    arguments: dict[str, Any] = dict(options)
    if "root" in inspect.signature(entry.function).parameters:
        arguments["root"] = root
    return (round_ for round_ in entry.function(ranks, **arguments) if len(round_))
