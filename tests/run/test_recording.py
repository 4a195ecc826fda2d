"""Recordings of real ranks: what a trace says must be what the schedule asks for, in an order that can be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole.algorithms import REGISTRY, build
from farandole.collectives import collective
from farandole.run.recording import clock_quality, disagreement
from farandole.run.spawn import spawn
from farandole.schedule import Schedule
from farandole.trace import Event, Trace, loads

RANKS_PY = str(Path(__file__).with_name("recording_ranks.py"))
RANKS = 3
LENGTH = 1000


def _spawn(name: str, ranks: int = RANKS, **arguments: Any) -> list[Any]:
    return spawn(ranks, f"{RANKS_PY}:{name}", arguments, timeout_s=60)


@pytest.fixture(scope="module")
def traces() -> dict[tuple[str, str], Trace]:
    answers = _spawn("every_algorithm", length=LENGTH)
    assert answers[0] == answers[1] == answers[2]
    return dict(zip(sorted(REGISTRY), (loads(text.encode()) for text in answers[0]), strict=True))


def moved(schedule: Schedule) -> set[tuple[int, int, int, int]]:
    """Round, src, dst and chunk of all that a schedule moves, chunk by chunk."""
    return {
        (number, src, dst, chunk)
        for number, r in enumerate(schedule.rounds)
        for src, dst, first, count in zip(
            r.src.tolist(), r.dst.tolist(), r.chunk.tolist(), r.count.tolist(), strict=True
        )
        for chunk in range(first, first + count)
    }


def taken_in(trace: Trace) -> Counter[tuple[int, int, int, int]]:
    return Counter(
        (event.round, event.peer, event.rank, chunk)
        for event in trace.events()
        if event.kind in ("receive", "reduce")
        for chunk in range(event.chunk, event.chunk + event.count)
    )


def check_order(trace: Trace) -> None:
    """Nobody does two things at once, and nobody takes in or goes on before it was told that it may."""
    published = {(e.rank, e.round, e.slice): e for e in trace.events() if e.kind == "publish"}
    for rank in range(trace.ranks):
        done: Event | None = None
        for event in trace.of(rank):
            together = done is not None and (event.start_ns, event.end_ns) == (done.start_ns, done.end_ns)
            assert done is None or together or event.start_ns >= done.end_ns
            done = event
            if event.round >= 0 and event.peer >= 0:
                told = published[event.peer, event.round, event.slice]
                at = event.end_ns if event.kind == "wait" else event.start_ns
                assert at >= told.start_ns - trace.uncertainty_ns


@pytest.mark.parametrize("which", sorted(REGISTRY), ids="-".join)
def test_a_trace_has_every_transfer_of_the_schedule(
    traces: dict[tuple[str, str], Trace], which: tuple[str, str]
) -> None:
    trace, schedule = traces[which], build(*which, RANKS, root=1)
    assert (trace.collective, trace.name, trace.ranks, trace.source) == (*which, RANKS, "measured")
    assert trace.root == (1 if collective(which[0]).rooted else 0)
    longest = RANKS * 334 if which[0] == "all_to_all" else LENGTH if collective(which[0]).moves_data else 0
    assert trace.size_bytes == longest * 4
    assert set(taken_in(trace).values()) <= {1}
    assert set(taken_in(trace)) == moved(schedule)
    check_order(trace)
    assert trace.columns["start_ns"].min() == 0
    assert trace.uncertainty_ns > 0


def test_events_have_the_sizes_of_their_chunks(traces: dict[tuple[str, str], Trace]) -> None:
    for event in traces["all_reduce", "ring"].events():
        if event.kind in ("receive", "reduce", "copy"):
            assert event.size_bytes == {0: 1336, 1: 1332, 2: 1332}[event.chunk]
    total: Counter[str] = Counter()
    for event in traces["all_reduce", "ring"].events():
        total[event.kind] += event.size_bytes
    assert total["reduce"] == total["receive"] == (RANKS - 1) * LENGTH * 4


def test_a_long_buffer_passes_in_slices_and_waits_for_room() -> None:
    trace = loads(_spawn("many_slices", length=30_011, slot_bytes=1 << 16)[0].encode())
    slices = int(trace.columns["slice"].max()) + 1
    assert slices > 4
    check_order(trace)
    taken = [event for event in trace.events() if event.kind in ("receive", "reduce")]
    assert sum(event.size_bytes for event in taken) == 2 * (RANKS - 1) * 30_011 * 8
    room = [event for event in trace.events() if event.kind == "wait" and event.round < 0]
    assert len(room) == (slices + 1) // 2 * RANKS * (RANKS - 1)


@pytest.mark.parametrize(("ranks", "calls"), [(1, 0), (2, 1)])
def test_only_calls_of_the_foreground_are_recorded_and_only_while_it_is_open(ranks: int, calls: int) -> None:
    assert _spawn("only_while_it_is_open", ranks) == [[calls, calls]] * ranks


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("early", "UsageError: a recording is gathered when it is over"),
        ("twice", "UsageError: this communicator is being recorded already"),
        ("too much", "ResourceError: these calls make"),
        ("different", "UsageError: the ranks have recorded different numbers of calls: [1, 2]"),
    ],
)
def test_misuse_is_an_error_on_every_rank_and_leaves_the_communicator_usable(how: str, words: str) -> None:
    for said, then in _spawn("misused", 2, how=how):
        assert said.startswith(words)
        assert then == "[0, 1]"


def test_the_clock_is_read_in_less_than_a_microsecond_and_has_fine_steps() -> None:
    cost_ns, step_ns = clock_quality()
    assert 0 < step_ns <= max(cost_ns, 1) * 1000


def test_a_rank_that_goes_on_before_it_was_told_shows_that_clocks_disagree() -> None:
    from farandole.trace import KINDS

    wait, publish = KINDS.index("wait"), KINDS.index("publish")
    columns = {
        "kind": [publish, wait, publish, wait],
        "rank": [0, 1, 1, 0],
        "peer": [-1, 0, -1, 1],
        "round": [0, 0, 0, 0],
        "slice": [0, 0, 0, 0],
        "start_ns": [100, 20, 150, 120],
        "end_ns": [110, 90, 160, 200],
    }
    assert disagreement({name: np.array(values) for name, values in columns.items()}) == 10
