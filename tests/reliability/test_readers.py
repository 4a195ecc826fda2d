"""Whatever a file or a message says, its reader answers with a value or with an error of ours that says where."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuzzing
from farandole import trace
from farandole.cluster.file import LIMIT_BYTES, load, loads
from farandole.errors import FormatError, ResourceError
from farandole.export.json import read_schedule
from farandole.schedule import Round, Schedule
from farandole.verify import schedule as proof
from farandole.verify import verify_schedule

TARGETS = fuzzing.targets()


@pytest.fixture(autouse=True)
def _small_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "MOST_BYTES", fuzzing.MOST_PROOF_BYTES)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_examples_are_read(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name].read(seed)


@pytest.mark.parametrize("name", sorted(TARGETS))
@settings(max_examples=80, deadline=None)
@given(st.data())
def test_what_is_bent_is_read_or_refused_in_our_words(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    with contextlib.suppress(*target.errors):
        target.read(fuzzing.bent(target, lambda n: data.draw(st.integers(0, n - 1))))


CLUSTER = 'format = "farandole-cluster"\nversion = 1\nname = "x"\n[[rank]]\nnode = "d{i}"\nrepeat = { i = 2 }\n'
LINK = '[[link]]\nsrc = "d0"\ndst = "d1"\nbandwidth = "1GB/s"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CLUSTER.replace("i = 2", "i = 1000000000") + LINK, "at most, and this one has 1,000,000,000"),
        (CLUSTER + 2 * (LINK + "repeat = { i = 3000000 }\n"), "links at most, and this one has 6,000,000"),
        (CLUSTER + LINK.replace("d0", "{i:1000000000}") + "repeat = { i = 1 }\n", "a name in braces is one of repeat"),
        (CLUSTER + LINK.replace("d0", "{i.__class__}") + "repeat = { i = 1 }\n", "a name in braces is one of repeat"),
        (CLUSTER + LINK.replace('"1GB/s"', f'"{"9" * 400}GB/s"'), "a bandwidth is written"),
        (CLUSTER + LINK + '[[slow]]\nbetween = "d0->d1"\nfactor = nan\n', "must be greater than 0"),
        ("x = " + "[" * 100_000, "nested too deeply"),
        ("#" * (LIMIT_BYTES + 1), "bytes at most"),
    ],
)
def test_a_cluster_that_asks_for_more_than_anyone_has_is_refused_at_once(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        loads(text.encode(), Path("c.toml"))


def test_a_cluster_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatError, match="bytes at most"):
        load(path)


def test_a_trace_file_that_is_too_large_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "LIMIT_BYTES", 100)
    path = tmp_path / "t.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatError, match="bytes at most"):
        trace.load(path)
    with pytest.raises(FormatError, match="nested too deeply"):
        trace.loads(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@pytest.mark.parametrize("more", [{"ranks": 2**31 - 1}, {"chunks": 2**31 - 1}, {"ranks": 9999, "chunks": 9999}])
def test_a_schedule_too_large_to_be_proven_is_refused_before_memory_is_taken(more: dict[str, int]) -> None:
    rounds = [{"transfers": [{"src": 0, "dst": 1, "chunk": 0}]}]
    file = {"format": "farandole.schedule", "version": 1, "collective": "all_reduce", "ranks": 2, "chunks": 1}
    schedule = read_schedule(json.dumps({**file, "rounds": rounds, **more}).encode())
    with pytest.raises(ResourceError, match="try it with fewer ranks or chunks") as info:
        verify_schedule(schedule)
    assert info.value.facts["needed"] > info.value.facts["available"]


def test_a_round_too_long_to_be_proven_is_refused_before_memory_is_taken() -> None:
    many = 1000
    zeros = [0] * many
    round_ = Round(zeros, [1] * many, zeros, [100_000] * many)
    with pytest.raises(ResourceError, match="a round of 1000 transfers"):
        verify_schedule(Schedule("all_reduce", 2, 100_000, (round_,)))
