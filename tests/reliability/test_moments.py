"""What befalls a rank at an awkward moment is heard of by the others, at once and in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farandole.run.spawn import spawn, spawn_all

RANKS_PY = str(Path(__file__).with_name("moment_ranks.py"))
VICTIM = 1


def _survivors(ranks: int, name: str, **arguments: Any) -> dict[int, Any]:
    outcomes = spawn_all(ranks, f"{RANKS_PY}:{name}", arguments, timeout_s=25)
    assert outcomes[VICTIM].status == -9
    assert all(outcome.error is None for outcome in outcomes if outcome.rank != VICTIM), outcomes
    return {outcome.rank: outcome.result for outcome in outcomes if outcome.rank != VICTIM}


@pytest.mark.parametrize("color", [0, 1])
def test_a_rank_that_dies_in_a_split_is_lost_to_those_that_wait_for_it_there(color: int) -> None:
    for rank, (told, pid, later) in _survivors(4, "killed_in_a_split", color=color).items():
        if color == 0 or rank == 3:
            assert (told["error"], told["rank"], told["peer"], told["pid"]) == ("PeerLostError", rank, VICTIM, pid)
            assert f"rank {rank}, split: rank 1 (pid {pid}) has died" in told["message"]
        else:
            assert told["error"] == ""
        assert later in {"PeerLostError", "ClosedError"}


def test_a_rank_that_dies_when_a_shared_array_is_made_is_lost() -> None:
    for rank, (told, pid, later) in _survivors(3, "killed_in_empty").items():
        assert (told["error"], told["rank"], told["peer"], told["pid"]) == ("PeerLostError", rank, VICTIM, pid)
        assert later in {"PeerLostError", "ClosedError"}


@pytest.mark.parametrize("what", ["split", "empty"])
@pytest.mark.parametrize(("how", "error"), [("closes", "ClosedError"), ("ends", "PeerLostError")])
def test_nobody_waits_in_a_meeting_for_a_rank_that_has_left_the_communicator(what: str, how: str, error: str) -> None:
    told = spawn(3, f"{RANKS_PY}:gone_before_a_meeting", {"what": what, "how": how}, timeout_s=25)
    for rank in (0, 2):
        assert (told[rank]["error"], told[rank]["rank"]) == (error, rank), told
        assert f"rank {rank}, {what}" in told[rank]["message"]
    blamed = {told[0]["peer"], told[2]["peer"]}
    # Whoever has heard of it may have closed as well, before the other one looks.
    assert VICTIM in blamed if how == "closes" else blamed == {VICTIM}


def test_nobody_waits_for_a_rank_that_has_no_communicator_after_all() -> None:
    told = spawn(3, f"{RANKS_PY}:without_a_communicator_after_all", timeout_s=25)
    assert [each["error"] for each in told] == ["ClosedError", "UsageError", "ClosedError"]
    assert {told[rank]["peer"] for rank in (0, 2)} == {VICTIM}


@pytest.mark.parametrize(
    "where", ["a guest, ready", "a guest, told to go", "a guest, at the end", "the host, in between"]
)
def test_nobody_waits_for_a_rank_that_is_interrupted_when_the_ranks_have_met(where: str) -> None:
    told = spawn(3, f"{RANKS_PY}:interrupted_when_the_ranks_have_met", {"where": where}, timeout_s=25)
    assert told[VICTIM]["error"] == "interrupted"
    in_the_meeting = {rank for rank in (0, 2) if told[rank]["error"] == "RendezvousError"}
    for rank in in_the_meeting:
        assert "rank 1 (process" in told[rank]["message"]
    for rank in {0, 2} - in_the_meeting:  # for which the meeting had ended: in its first call
        assert told[rank]["error"] == "ClosedError", told
        assert told[rank]["peer"] in {VICTIM, *in_the_meeting}


def test_a_rank_that_makes_another_call_than_a_shared_array_is_noticed_at_once() -> None:
    assert [told["error"] for told in spawn(3, f"{RANKS_PY}:another_call_than_empty")] == ["MismatchError"] * 3


def test_a_mismatch_shows_both_sides_although_a_rank_has_not_come_so_far() -> None:
    for message in spawn(3, f"{RANKS_PY}:a_mismatch_of_two_while_a_third_is_far_behind"):
        assert "rank 0 is at #1 broadcast(float64[5], direct, root=0)" in message
        assert "rank 1 is at #1 broadcast(float64[5], direct, root=1)" in message
        assert "rank 2 is at no call yet" in message


def test_a_mismatch_shows_both_sides_although_others_are_two_calls_ahead() -> None:
    for message in spawn(3, f"{RANKS_PY}:a_mismatch_that_is_noticed_when_others_are_two_calls_ahead"):
        assert "rank 1 is at #1 broadcast(float64[500], direct, root=1)" in message
        assert "ranks 0, 2 are at #1 broadcast(float64[500], direct, root=0)" in message


def test_a_death_is_heard_of_although_another_rank_is_stopped() -> None:
    for told in _survivors(4, "one_is_stopped_and_another_killed").values():
        assert (told["error"], told["peer"], told["is_right"]) == ("PeerLostError", VICTIM, True)


def test_timeouts_of_a_tenth_of_a_second_name_the_late_one_every_time() -> None:
    told = spawn(3, f"{RANKS_PY}:timeouts_of_a_tenth_of_a_second", timeout_s=25)
    for rank in range(3):
        calls, messages = told[rank][:5], told[rank][5:10]
        assert calls == [["TimeLimitError", VICTIM, True]] * 5
        assert messages == [["TimeLimitError", (rank + 1) % 3, True]] * 5
        assert told[rank][10:] == [1.0]


@pytest.mark.parametrize(("how", "ranks"), [("broadcast", 2), ("message", 4)])
def test_whoever_waits_to_write_hears_of_a_death_as_a_reader_does(how: str, ranks: int) -> None:
    for rank, (told, pid) in _survivors(ranks, "killed_while_others_write_to_it", how=how).items():
        assert (told["error"], told["rank"], told["peer"], told["pid"]) == ("PeerLostError", rank, VICTIM, pid), told


def test_an_exception_with_calls_in_flight_is_a_loss_that_says_which_exception_it_was() -> None:
    told = spawn(3, f"{RANKS_PY}:ended_by_an_exception_with_a_call_in_flight")
    assert told[VICTIM]["error"] == "its own"
    for rank in (0, 2):
        assert (told[rank]["error"], told[rank]["peer"]) == ("PeerLostError", VICTIM)
        assert "was ended by RuntimeError" in told[rank]["message"]
