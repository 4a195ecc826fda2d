"""The flight recorder: what it holds, who can read it, and what is written when a call fails."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from farandole import _core
from farandole.cli._app import MISUSED, application
from farandole.errors import FormatError, PeerLostError, UsageError
from farandole.run import flight as flights
from farandole.run import outside
from farandole.run.flight import RECORDS, control_bytes, parse
from farandole.run.spawn import spawn, spawn_all

RANKS_PY = str(Path(__file__).with_name("flight_ranks.py"))
RANKS, SLOT_BYTES = 3, 4096
CALLS, LONG = 150, 100_000  # of flight_ranks.records
CLOCK = (True, 10**12, 10**12)


def _spawn(ranks: int, name: str, **arguments: Any) -> list[Any]:
    return spawn(ranks, f"{RANKS_PY}:{name}", arguments, timeout_s=40)


@pytest.fixture(scope="module")
def control() -> Iterator[bytes]:
    """The control part of a segment that one of three ranks has mapped."""
    size = _core.segment_bytes(RANKS, SLOT_BYTES)
    descriptor = os.memfd_create("farandole-test")
    os.ftruncate(descriptor, size)
    runner = _core.Runner(descriptor, 1, RANKS, SLOT_BYTES, [-1] * RANKS, (0, 0, 0), (0, 0, 0), 2)
    yield runner.control()
    os.close(descriptor)


def test_the_last_calls_are_there_with_their_own_texts_however_many_plans_there_were() -> None:
    for flight in _spawn(2, "records"):
        for rank in flight["ranks"]:
            calls, messages = rank["calls"], rank["messages"]
            numbers = [call["number"] for call in calls if call["number"] <= CALLS]
            assert numbers == list(range(numbers[0], CALLS + 1))
            assert len(calls) >= RECORDS - 2
            for call in calls[: len(numbers)]:
                k = call["number"] - 1
                assert call["text"] == f"all_reduce(float32[{k % 100 + 1}], sum, naive)"
                assert call["bytes"] == (k % 100 + 1) * 4
                assert call["kind"] == ("foreground" if k % 3 else "background")
                assert call["outcome"] == "none"
                assert call["begin_ns"] <= call["end_ns"] <= flight["now_ns"]
            assert [message["number"] for message in messages][-1] <= 80
            for message in messages[:-1]:  # the other side may not have ended the last one
                k = message["number"] - 1
                way = f"send to rank 1, tag {k}" if rank["rank"] == 0 else f"receive from rank 0, tag {k}"
                assert message["text"] == f"{way} (float64, {8 * (k + 1)} bytes)"


def test_counters_are_the_sums_of_all_calls() -> None:
    mine = _spawn(2, "records")[0]
    counters = mine["ranks"][0]["counters"]
    assert counters["calls"] == CALLS + 1
    assert counters["messages"] == 80
    size = sum(4 * (k % 100 + 1) for k in range(CALLS)) + 4 * LONG
    sent = sum(8 * (k + 1) for k in range(80))
    assert (counters["bytes"], counters["sent"], counters["received"]) == (size, size + sent, size)
    assert counters["waiting_ns"] > 0
    assert 0 < counters["busy_ns"] <= mine["now_ns"]


def test_a_segment_that_nobody_used_says_who_has_mapped_it(control: bytes) -> None:
    seen = parse(control, control, _core.flight_clock())
    assert [rank.pid for rank in seen.ranks] == [0, os.getpid(), 0]
    assert seen.ranks[1].started == outside.process(os.getpid()).started
    assert all(rank.calls == () and rank.messages == () and rank.waits_for in {None, 0} for rank in seen.ranks)
    assert control_bytes(control, _core.segment_bytes(RANKS, SLOT_BYTES)) == len(control)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_the_bytes_are_they_are_refused_or_read_within_bounds(control: bytes, data: st.DataObject) -> None:
    damaged = bytearray(control)
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(0, len(damaged) - 8))
        damaged[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8))
    length = data.draw(st.sampled_from([0, 8, 63, 64, len(damaged) - 1, len(damaged), len(damaged)]))
    try:
        seen = parse(bytes(damaged[:length]), bytes(damaged[:length]), CLOCK)
    except FormatError:
        return
    assert len(seen.ranks) == seen.size == RANKS
    for rank in seen.ranks:
        assert rank.waits_for in {None, *range(RANKS)}
        assert rank.ending.isprintable()
        for record in (*rank.calls, *rank.messages):
            assert record.peer in {None, *range(RANKS)}
            assert record.text.isprintable()
            assert 0 <= record.begin_ns <= CLOCK[2]


@pytest.mark.parametrize(
    ("at", "what", "match"),
    [
        (0, b"another!", "does not begin as one"),
        (28, (99).to_bytes(4, "little"), "version 99"),
        (24, (0).to_bytes(4, "little"), "damaged"),
        (24, (70000).to_bytes(4, "little"), "damaged"),
        (32, (2**60).to_bytes(8, "little"), "damaged"),
        (24, (2).to_bytes(4, "little"), "2 ranks of 4096 bytes, which is"),
    ],
)
def test_a_foreign_segment_is_refused_before_its_sizes_are_used(
    control: bytes, at: int, what: bytes, match: str
) -> None:
    foreign = control[:at] + what + control[at + len(what) :]
    with pytest.raises(FormatError, match=match):
        control_bytes(foreign[:64], _core.segment_bytes(RANKS, SLOT_BYTES))


def test_a_record_that_may_have_been_overwritten_during_the_copy_is_left_out(control: bytes) -> None:
    lines, at, _ = _core.segment_offsets(RANKS, SLOT_BYTES)
    earlier, later = bytearray(control), bytearray(control)
    for number in range(1, RECORDS + 1):
        row = flights._RECORD.pack(number, 1, 2, 8, 0, -1, 0, 0, 0, b"")
        begin = at + flights._LAST_CALLS + number % RECORDS * len(row)
        earlier[begin : begin + len(row)] = row
    earlier[lines + 8 : lines + 16] = RECORDS.to_bytes(8, "little")
    later[lines + 8 : lines + 16] = (RECORDS + 3).to_bytes(8, "little")
    calls = parse(bytes(earlier), bytes(later), CLOCK).ranks[0].calls
    assert [call.number for call in calls] == list(range(5, RECORDS + 1))


def test_a_stopped_job_is_read_from_outside_with_who_waits_for_whom() -> None:
    seen = _spawn(3, "seen_from_outside")[0]
    pids = seen["pids"]
    assert seen["verdict"][0].startswith("ranks 0 and 1 wait for rank 2")
    assert "it is stopped (T)" in seen["verdict"][0]
    rows = seen["json"]["ranks"]
    assert [row["pid"] for row in rows] == pids
    assert [row["state"] for row in rows] == ["running", "running", "idle"]
    assert [row["waits_for"] for row in rows] == [[2], [2], []]
    assert [row["seq"] for row in rows] == [3, 3, 2]
    assert rows[0]["call"] == "all_reduce(float64[1003], sum, direct)"
    assert rows[0]["calls"][-1]["algorithm"] == "direct"
    assert seen["json"]["format"] == "farandole.inspect"
    assert pids == [row["pid"] for row in seen["all"]["ranks"] if row["pid"] in pids]
    assert "idle, stopped" in seen["text"]
    assert "waits for" in seen["text"]
    table = [line.split() for line in seen["top"].splitlines()]
    assert {str(pid) for pid in pids} <= {row[0] for row in table}
    assert next(row for row in table if row[0] == str(pids[0]))[2] == "running"


def test_more_communicators_than_keep_a_descriptor_are_seen_all_the_same() -> None:
    assert _spawn(2, "many_communicators") == [[2, 7, 0]] * 2


def test_a_process_without_communicators_and_one_that_does_not_exist_are_told_apart() -> None:
    assert outside.of_process(os.getpid()) == []
    answer = CliRunner().invoke(application(), ["inspect", str(os.getpid())])
    assert (answer.exit_code, "is in no communicator" in answer.stderr) == (MISUSED, True)
    with pytest.raises(UsageError, match="there is no process 4194305"):
        outside.of_process(4194305)
    assert CliRunner().invoke(application(), ["inspect"]).exit_code == MISUSED


def test_memory_that_only_has_the_name_is_refused() -> None:
    descriptor = os.memfd_create("farandole")
    try:
        os.write(descriptor, b"something else entirely " * 20)
        with pytest.raises(FormatError, match="no segment of farandole"):
            outside.of_process(os.getpid())
        assert all(os.getpid() not in [rank.pid for rank in found.flight.ranks] for found in outside.of_user())
    finally:
        os.close(descriptor)


def test_a_failure_is_written_to_a_file_by_each_rank_that_sees_it(tmp_path: Path) -> None:
    outcomes = spawn_all(3, f"{RANKS_PY}:one_dies", {"folder": str(tmp_path / "dumps")}, timeout_s=40)
    files = sorted((tmp_path / "dumps").iterdir())
    assert [file.name for file in files] == [f"farandole-rank{r}-pid{outcomes[r].pid}-0.json" for r in (0, 2)]
    for rank, file in zip((0, 2), files, strict=True):
        for message, path in outcomes[rank].result:
            assert path == str(file)
            assert path in message
        whole = json.loads(file.read_text())
        assert (whole["format"], whole["version"], whole["rank"]) == ("farandole.flight", 1, rank)
        assert whole["error"]["type"] == "PeerLostError"
        assert whole["flight"]["failure"] == "lost"
        dead = whole["flight"]["ranks"][1]
        assert (dead["pid"], dead["calls"][-1]["text"]) == (outcomes[1].pid, "all_reduce(float64[5], sum, naive)")


def test_a_file_that_cannot_be_written_is_mentioned_and_hides_nothing(tmp_path: Path) -> None:
    outcomes = spawn_all(2, f"{RANKS_PY}:one_cannot_write", {"folder": str(tmp_path / "file")}, timeout_s=40)
    message, path = outcomes[0].result[0]
    assert path is None
    assert "has died" in message
    assert "could not be written" in message


def test_an_exception_that_ends_a_rank_is_a_loss_for_the_others_with_its_name() -> None:
    for name, kind in (("raises_in_a_with_block", "KeyError"), ("raises", "ZeroDivisionError")):
        outcomes = spawn_all(3, f"{RANKS_PY}:{name}", timeout_s=40)
        for rank in (0, 2):
            error, peer, pid, message = outcomes[rank].result
            assert (error, peer, pid) == (PeerLostError.__name__, 1, outcomes[1].pid)
            assert f"rank 1 (pid {pid}) was ended by {kind}" in message


def test_an_exit_that_means_success_is_no_loss() -> None:
    assert _spawn(2, "leaves_well")[0][0] == "ClosedError"


def test_a_forked_child_is_told_so_by_whatever_it_tries() -> None:
    assert _spawn(2, "forks") == [0, 0]
