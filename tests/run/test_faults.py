"""Nothing hangs, nothing lies, nothing leaks: a short campaign of random faults, and every fault found so far."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from farandole.run.spawn import spawn, spawn_all

RANKS_PY = str(Path(__file__).with_name("fault_ranks.py"))
CAMPAIGN = Path(__file__).parents[2] / "scripts" / "fault_campaign.py"


def _spawn(ranks: int, name: str, **arguments: Any) -> list[Any]:
    return spawn(ranks, f"{RANKS_PY}:{name}", arguments, timeout_s=40)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, 1001, 2001, 3001])
def test_random_faults_make_nothing_hang_lie_or_leak(seed: int) -> None:
    command = [sys.executable, str(CAMPAIGN), "--runs", "20", "--seed", str(seed), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    assert sum(row["runs"] for row in json.loads(done.stdout).values()) == 20


def test_calls_without_data_keep_ranks_together() -> None:
    assert _spawn(3, "calls_without_data_do_not_let_a_rank_run_away") == [None] * 3


def test_different_calls_without_data_are_noticed() -> None:
    assert [kind for kind, _ in _spawn(3, "different_calls_without_data")] == ["MismatchError"] * 3


def test_a_mismatch_that_is_noticed_later_shows_the_call_in_which_the_ranks_first_differed() -> None:
    for message in _spawn(2, "a_mismatch_that_is_noticed_a_call_later"):
        assert "rank 0 is at #1 broadcast(float64[5], direct, root=0)" in message
        assert "rank 1 is at #1 broadcast(float64[5], direct, root=1)" in message


def test_a_rank_that_needs_nothing_of_the_others_may_be_many_short_calls_ahead() -> None:
    assert _spawn(3, "many_calls_ahead", odd=0) == [""] * 3


@pytest.mark.parametrize("odd", [1, 20])
def test_a_mismatch_is_noticed_although_another_rank_is_many_calls_ahead(odd: int) -> None:
    for message in _spawn(3, "many_calls_ahead", odd=odd):
        assert f"rank 1 is at #{odd} all_gather(float64[3 x 3], direct)" in message
        assert f"#{odd} broadcast(int64[3], direct, root=0)" in message


def test_the_late_rank_is_blamed_and_not_one_that_waits_for_it() -> None:
    assert _spawn(5, "the_one_that_all_wait_for_is_blamed") == [["TimeLimitError", 1]] * 5


def test_a_receive_given_up_in_the_middle_of_a_message_leaves_the_message_to_the_next() -> None:
    assert _spawn(2, "a_message_that_comes_after_its_receive_was_given_up") == [True, True]


def test_closing_ends_a_receive_of_half_a_message() -> None:
    assert _spawn(2, "a_receive_of_half_a_message_ends_when_the_communicator_is_closed")[1] == ["ClosedError"] * 2


def test_closing_ends_the_calls_of_other_threads() -> None:
    mine, theirs = _spawn(2, "a_call_of_another_thread_ends_when_the_communicator_is_closed")
    assert mine[:2] == ["ClosedError"] * 2
    assert theirs[0] == "ClosedError"


def test_a_send_in_flight_ends_before_its_communicator_closes() -> None:
    assert _spawn(2, "a_send_in_the_background_ends_before_closing") == [True, True]


def test_a_message_that_was_sent_arrives_although_its_sender_has_closed() -> None:
    assert _spawn(2, "what_was_sent_before_closing_arrives")[1] == 100


def test_a_strided_array_holds_the_result_when_wait_returns() -> None:
    assert _spawn(2, "a_strided_result_is_there_when_wait_returns") == [0, 0]


def test_a_communicator_that_nobody_holds_is_closed_with_its_calls() -> None:
    assert _spawn(2, "a_forgotten_communicator_is_closed") == [0, 0]


def test_a_forked_child_may_let_go_of_what_it_inherited() -> None:
    assert _spawn(2, "a_forked_child_lets_go_of_what_it_inherited") == [0, 0]


@pytest.mark.parametrize("name", ["a_signal_handler_may_close", "a_signal_handler_may_close_in_a_collective"])
def test_a_signal_handler_may_close_the_communicator_that_its_thread_waits_in(name: str) -> None:
    assert _spawn(2, name) == ["ended"] * 2


def test_a_process_ends_with_status_0_although_a_daemon_thread_is_in_a_call() -> None:
    outcomes = spawn_all(2, f"{RANKS_PY}:exits_with_a_daemon_thread_in_a_call", timeout_s=40)
    assert [(outcome.status, outcome.output) for outcome in outcomes] == [(0, "")] * 2
