"""Traces for Perfetto: they are read back whole, nest on every track, and are found out where they do not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from farandole.algorithms import build
from farandole.cluster import parse
from farandole.errors import FormatError
from farandole.export.perfetto import from_perfetto, to_perfetto
from farandole.simulate import simulate
from farandole.trace import COLUMNS, KINDS, Trace, make


def simulated(name: str = "direct", ranks: int = 4) -> Trace:
    trace = simulate(build("all_reduce", name, ranks), parse(f"switch:{ranks}"), 1 << 20, trace=True).trace
    assert trace is not None
    return trace


def measured() -> Trace:
    """Rank 1 of two: it waits, takes in two transfers in one pass, and says that it is done."""
    rows = [
        ("wait", 0, 0, 0, -1, 0, 0, 0, 1500),
        ("reduce", 0, 0, 0, 0, 2, 4096, 1500, 2750),
        ("reduce", 0, 0, 0, 2, 2, 4096, 1500, 2750),
        ("publish", -1, 0, -1, -1, 0, 0, 2750, 2750),
    ]
    names = ("round", "slice", "peer", "chunk", "count", "size_bytes", "start_ns", "end_ns")
    columns = dict(zip(names, zip(*(row[1:] for row in rows), strict=True), strict=True))
    kinds = [KINDS.index(row[0]) for row in rows]
    return make("x", "reduce", 2, 8192, "measured", uncertainty_ns=42, root=1, rank=[1] * 4, kind=kinds, **columns)


def entries(trace: Trace, ph: str) -> list[dict[str, Any]]:
    return [entry for entry in json.loads(to_perfetto(trace))["traceEvents"] if entry["ph"] == ph]


@pytest.mark.parametrize("trace", [simulated(), simulated("hierarchical:levels=4x2", 8), measured()], ids=len)
def test_a_trace_survives_the_way_there_and_back(trace: Trace) -> None:
    again = from_perfetto(to_perfetto(trace))
    for name in COLUMNS:
        assert sorted(again.columns[name].tolist()) == sorted(trace.columns[name].tolist())
    assert set(again.events()) == set(trace.events())
    for name in ("name", "collective", "ranks", "size_bytes", "source", "uncertainty_ns", "root"):
        assert getattr(again, name) == getattr(trace, name)


def test_transfers_have_tracks_by_peer_and_direction_and_arrows() -> None:
    trace = simulated()
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in entries(trace, "M") if e["name"] == "thread_name"}
    spans = entries(trace, "X")
    for span in spans:
        peer = span["args"]["peer"]
        expected = {"send": f"to rank {peer}", "receive": f"from rank {peer}"}.get(span["cat"], "what the rank does")
        assert names[span["pid"], span["tid"]].removesuffix(" (2)") == expected
    begun = {e["id"]: e for e in entries(trace, "s")}
    ended = {e["id"]: e for e in entries(trace, "f")}
    assert begun.keys() == ended.keys()
    assert len(begun) == sum(span["cat"] == "send" for span in spans)
    assert all(begun[key]["ts"] <= ended[key]["ts"] and begun[key]["pid"] != ended[key]["pid"] for key in begun)


def test_what_a_rank_that_shares_memory_does_is_one_track_with_no_arrows() -> None:
    trace = measured()
    assert {(e["pid"], e["tid"]) for e in entries(trace, "X")} == {(1, 0)}
    assert not entries(trace, "s")
    assert not entries(trace, "f")
    assert [(e["name"], e["ts"], e["dur"]) for e in entries(trace, "X")][1:3] == [
        ("reduce 0-1", 1.5, 1.25),
        ("reduce 2-3", 1.5, 1.25),
    ]


def test_nanoseconds_are_not_lost_in_long_traces() -> None:
    late = measured()
    shift = {"start_ns": late.columns["start_ns"] + 10**15 + 1, "end_ns": late.columns["end_ns"] + 10**15 + 1}
    trace = replace(late, columns={**late.columns, **shift})
    assert np.array_equal(from_perfetto(to_perfetto(trace)).columns["end_ns"], trace.columns["end_ns"])


def _changed(place: int, **fields: Any) -> bytes:
    document = json.loads(to_perfetto(measured()))
    spans = [entry for entry in document["traceEvents"] if entry["ph"] == "X"]
    arguments = {key: value for key, value in fields.items() if key in COLUMNS}
    spans[place]["args"].update(arguments)
    spans[place].update({key: value for key, value in fields.items() if key not in arguments})
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[1]", "not a trace that farandole wrote for Perfetto"),
        (b'{"traceEvents": [], "otherData": {}}', "missing required field"),
        (_changed(0, cat="dance"), "not a trace that farandole wrote"),
        (_changed(1, ts=1.6), "reduce 0-1 of rank 1 is drawn at 1.6 us, which is not its time"),
        (_changed(3, ts=2.0, dur=1.0, start_ns=2000, end_ns=3000), "publish of rank 1 at 2.0 us overlaps"),
    ],
)
def test_what_is_not_ours_or_does_not_nest_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        from_perfetto(data)
