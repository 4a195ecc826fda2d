from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from farandole.errors import FormatError, UsageError
from farandole.trace import COLUMNS, load, loads, make


def columns(rows: int = 3) -> dict[str, Any]:
    table = {name: [i * (place + 1) for i in range(rows)] for place, name in enumerate(COLUMNS)}
    table["peer"] = [i - 1 for i in range(rows)]
    table["kind"] = [i % 4 for i in range(rows)]
    table["start_ns"] = [30 - 10 * i for i in range(rows)]
    table["end_ns"] = [100] * rows
    return table


def test_events_come_in_order_of_their_start() -> None:
    trace = make("ring", "all_reduce", 4, 64, "measured", **columns())
    assert [event.start_ns for event in trace.events()] == [10, 20, 30]
    assert [event.rank for event in trace.events()] == [2, 1, 0]
    assert [event.kind for event in trace.of(1)] == ["receive"]
    assert trace.time_ns == 100


def test_a_trace_survives_the_way_through_a_file(tmp_path: Path) -> None:
    trace = make("ring", "all_reduce", 4, 64, "simulated", uncertainty_ns=7, root=2, **columns())
    path = tmp_path / "trace.json"
    path.write_bytes(trace.to_json())
    again = load(path)
    assert list(again.events()) == list(trace.events())
    assert (again.name, again.collective, again.ranks, again.size_bytes, again.source) == (
        "ring", "all_reduce", 4, 64, "simulated",
    )  # fmt: skip
    assert (again.uncertainty_ns, again.root) == (7, 2)


def test_a_file_that_numbers_the_kinds_its_own_way_is_read() -> None:
    document = msgspec.json.decode(make("x", "reduce", 4, 8, "measured", **columns(4)).to_json())
    kinds = [document["kinds"][kind] for kind in document["columns"]["kind"]]
    few = sorted(set(kinds))
    document["kinds"], document["columns"]["kind"] = few, [few.index(kind) for kind in kinds]
    for name in ("uncertainty_ns", "root"):
        del document[name]
    assert [event.kind for event in loads(msgspec.json.encode(document)).events()] == kinds


def test_unknown_fields_are_ignored_and_unknown_versions_refused() -> None:
    document = msgspec.json.decode(make("x", "reduce", 3, 8, "measured", **columns()).to_json())
    assert len(loads(msgspec.json.encode({**document, "new": 1}))) == 3
    with pytest.raises(FormatError, match="version 2"):
        loads(msgspec.json.encode({**document, "version": 2}))
    with pytest.raises(FormatError, match="format is 'other'"):
        loads(msgspec.json.encode({**document, "format": "other"}))
    with pytest.raises(FormatError, match="publish, not shout"):
        loads(msgspec.json.encode({**document, "kinds": ["send", "shout"]}))
    with pytest.raises(FormatError, match="names 1 kinds of events, and numbers them 0 to 2"):
        loads(msgspec.json.encode({**document, "kinds": ["send"]}))
    with pytest.raises(FormatError, match="not a trace"):
        loads(b"{")
    with pytest.raises(FormatError, match=r"nowhere\.json cannot be read"):
        load(Path("nowhere.json"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"end_ns": [0, 0, 0]}, "ends before it starts"),
        ({"rank": [1]}, "all of one length"),
        ({"extra": [1, 2, 3]}, "missing or too many: extra"),
        ({"rank": [0, 1, 2]}, "the rank of an event is 2, and must be 0 to 1"),
        ({"peer": [0, -2, 1]}, "the peer of an event is -2, and must be -1 to 1"),
        ({"kind": [0, 1, 6]}, "the kind of an event is 6"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(change: dict[str, list[int]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make("x", "reduce", 2, 8, "measured", **{**columns(), "rank": [0, 1, 0], **change})


def test_a_trace_is_simulated_or_measured() -> None:
    with pytest.raises(UsageError, match="simulated or measured, not 'guessed'"):
        make("x", "reduce", 2, 8, "guessed", **columns())
