from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import farandole
from farandole.algorithms import REGISTRY, build
from farandole.errors import FormatError
from farandole.export.json import read_schedule, schedule_to_json, write_schedule
from farandole.schedule import Round, Schedule
from farandole.verify import verify_schedule
from golden import Golden

COLUMNS = ("src", "dst", "chunk", "count", "reduce")


def same(one: Schedule, other: Schedule) -> bool:
    """Whether two schedules are equal in everything."""
    about = ("collective", "ranks", "chunks", "root", "name")
    return all(getattr(one, key) == getattr(other, key) for key in about) and (
        [(r.phase, *(getattr(r, name).tolist() for name in COLUMNS)) for r in one.rounds]
        == [(r.phase, *(getattr(r, name).tolist() for name in COLUMNS)) for r in other.rounds]
    )


@pytest.mark.parametrize(("collective", "name"), sorted(REGISTRY))
@pytest.mark.parametrize("ranks", [1, 2, 7, 8])
def test_what_is_written_reads_as_the_same(collective: str, name: str, ranks: int, tmp_path: Path) -> None:
    schedule = build(collective, name, ranks, ranks // 2)
    write_schedule(schedule, tmp_path / "s.json")
    again = read_schedule(tmp_path / "s.json")
    assert same(again, schedule)
    assert json.loads((tmp_path / "s.json").read_bytes()) == schedule_to_json(schedule)
    assert again.rounds[0].src.dtype == np.int32 if again.rounds else True


near, anything = st.integers(-2, 9), st.integers(-(2**31), 2**31 - 1)
transfers = st.tuples(near, near, near | anything, near | anything, st.booleans())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(transfers, max_size=4)))
def test_any_schedule_can_be_written_and_read_also_a_broken_one(table: list[list[tuple[Any, ...]]]) -> None:
    rounds = tuple(
        Round(**{name: [row[i] for row in rows] for i, name in enumerate(COLUMNS)})  # type: ignore[arg-type]
        for rows in table
    )
    schedule = Schedule("all_gather", 4, 8, rounds, name="anything")
    again = read_schedule(json.dumps(schedule_to_json(schedule)).encode())
    assert same(again, schedule)
    assert verify_schedule(again).problems == verify_schedule(schedule).problems


def test_the_file_is_as_it_was(tmp_path: Path, golden: Golden) -> None:
    write_schedule(build("all_reduce", "ring", 3), tmp_path / "ring.json")
    text = (tmp_path / "ring.json").read_text().replace(farandole.__version__, "VERSION")
    golden("ring-3.json", text)


def minimal(**changes: Any) -> bytes:
    """The smallest file, with changes; a value of ... leaves a field out."""
    fields = {
        "format": "farandole.schedule",
        "version": 1,
        "collective": "all_reduce",
        "ranks": 2,
        "chunks": 1,
        "rounds": [{"transfers": [{"src": 0, "dst": 1, "chunk": 0}]}],
        **changes,
    }
    return json.dumps({key: value for key, value in fields.items() if value is not ...}).encode()


def test_most_fields_may_be_missing_and_unknown_ones_are_ignored() -> None:
    rounds = [{"transfers": [{"src": 0, "dst": 1, "chunk": 0, "colour": "red"}], "caption": "anything", "x": [1]}]
    schedule = read_schedule(minimal(rounds=rounds, tomorrow={"deep": [1, {"er": None}]}))
    expected = Schedule("all_reduce", 2, 1, (Round(0, 1, 0, 1),))
    assert same(schedule, expected)


def transfer(**fields: Any) -> list[Any]:
    """Rounds whose last transfer has these fields."""
    good = {"src": 0, "dst": 1, "chunk": 0}
    merged = {key: value for key, value in {**good, **fields}.items() if value is not ...}
    return [{"transfers": [good]}, {"transfers": [good, merged]}]


@pytest.mark.parametrize(
    ("changes", "where", "rule"),
    [
        ({"format": "farandole.trace"}, "format", "expected farandole.schedule, got farandole.trace"),
        ({"format": ...}, "", "object missing required field format"),
        ({"version": 2}, "version", "this release reads version 1, and this file has 2"),
        ({"version": "1"}, "version", "expected int, got str"),
        ({"collective": "barier"}, "collective", "no collective is called 'barier'; did you mean 'barrier'?"),
        ({"collective": ...}, "", "object missing required field collective"),
        ({"ranks": 0}, "ranks", "expected int >= 1"),
        ({"ranks": 2.0e99}, "ranks", "expected int, got float"),
        ({"chunks": -1}, "chunks", "expected int >= 1"),
        (
            {"collective": "all_gather", "chunks": 3},
            "chunks",
            "all_gather on 2 ranks has 2 blocks, so the number of chunks must be a multiple of 2, not 3",
        ),
        ({"root": 2}, "root", "expected one of the ranks 0 to 1, got 2"),
        ({"rounds": {}}, "rounds", "expected array, got object"),
        ({"rounds": [{"transfers": []}, {}]}, "rounds[1]", "object missing required field transfers"),
        ({"rounds": [{"transfers": [], "round": 1}]}, "rounds[0].round", "expected 0, got 1"),
        ({"rounds": transfer(dst="1")}, "rounds[1].transfers[1].dst", "expected int, got str"),
        ({"rounds": transfer(dst=...)}, "rounds[1].transfers[1]", "object missing required field dst"),
        ({"rounds": transfer(src=2**31)}, "rounds[1].transfers[1].src", "expected int <= 2147483647"),
        ({"rounds": transfer(reduce=1)}, "rounds[1].transfers[1].reduce", "expected bool, got int"),
        ({"rounds": transfer(count=None)}, "rounds[1].transfers[1].count", "expected int, got null"),
    ],
)
def test_a_malformed_file_is_refused_with_the_place(changes: dict[str, Any], where: str, rule: str) -> None:
    with pytest.raises(FormatError) as info:
        read_schedule(minimal(**changes))
    assert info.value.facts == {"where": where, "rule": rule}
    assert str(info.value) == (f"{where}: {rule}" if where else rule)


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "input data was truncated"),
        (b"{", "input data was truncated"),
        (b"{1}", "JSON is malformed: object keys must be strings (byte 1)"),
        (b"[]", "expected object, got array"),
        (b'{"x": "\xff"}', None),
        (b'{"x":' + b"[" * 10**5 + b"]" * 10**5 + b"}", "it is nested too deeply"),
    ],
)
def test_what_is_no_json_is_refused(data: bytes, rule: str | None) -> None:
    with pytest.raises(FormatError) as info:
        read_schedule(data)
    if rule:
        assert info.value.facts["rule"].casefold() == rule.casefold()


def test_a_file_that_is_refused_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(minimal(version=7))
    with pytest.raises(FormatError, match=r"s\.json: version: this release reads version 1") as info:
        read_schedule(path)
    assert info.value.facts["path"] == str(path)
    with pytest.raises(FileNotFoundError):
        read_schedule(tmp_path / "none.json")


def test_a_file_that_is_too_large_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(minimal())
    size = path.stat().st_size
    assert read_schedule(path, limit_bytes=size).ranks == 2
    with pytest.raises(FormatError, match=f"a schedule may have {size - 1} bytes at most"):
        read_schedule(path, limit_bytes=size - 1)
    with pytest.raises(FormatError, match="bytes at most"):
        read_schedule(minimal(), limit_bytes=10)
