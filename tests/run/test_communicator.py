"""The communicator on real processes: arrays, background calls, messages, parts, and every kind of misuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farandole
from farandole.errors import LengthError, UnknownNameError, UnsupportedError, UsageError
from farandole.run.spawn import spawn, spawn_all

RANKS_PY = str(Path(__file__).with_name("communicator_ranks.py"))


def _spawn(ranks: int, name: str, **arguments: Any) -> list[Any]:
    return spawn(ranks, f"{RANKS_PY}:{name}", arguments, timeout_s=40)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(
    "name",
    [
        "arrays_of_any_layout",
        "in_place_calls_with_overlapping_arrays",
        "uneven_parts",
        "background_calls_end_in_any_order_and_from_any_thread",
        "a_forgotten_background_call_is_carried_out",
        "parts_of_the_ranks_are_communicators_of_their_own",
        "many_communicators_leave_nothing_behind",
        "scaled_sums",
        "results_longer_than_the_caches",
        "a_schedule_of_ones_own",
        "shared_arrays_are_read_where_they_are",
        "calls_with_and_without_shared_arrays_in_turn",
        "shared_arrays_outlive_the_communicator",
        "calls_that_are_repeated_with_every_argument",
        "calls_that_look_like_one_before",
        "a_deterministic_communicator_adds_up_in_one_order",
    ],
)
def test_on_every_rank(name: str, ranks: int) -> None:
    assert _spawn(ranks, name) == [None] * ranks


@pytest.mark.parametrize(
    "name", ["messages_with_tags_out_of_order", "messages_larger_than_a_pipe", "messages_that_do_not_fit"]
)
def test_messages(name: str) -> None:
    assert _spawn(3, name) == [None] * 3


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("length", ["at #2 all_reduce(float32[8], sum", "rank 1 is at #2 all_reduce(float32[9], sum"]),
        ("dtype", ["float64[8]", "int64[8]"]),
        ("op", ["sum, naive", "max, naive"]),
        ("algorithm", ["sum, ring", "sum, tree"]),
        ("collective", ["all_gather", "all_reduce"]),
        ("root", ["root=0", "root=1"]),
    ],
)
def test_ranks_that_make_different_calls_get_an_error_on_every_rank_that_shows_both(how: str, words: list[str]) -> None:
    for kind, message in _spawn(3, "different_calls", how=how):
        assert kind == "MismatchError"
        assert all(word in message for word in words), message


def test_a_rank_that_does_not_come_is_named_at_the_deadline() -> None:
    answers = _spawn(3, "one_is_late")
    for kind, message in answers[:2]:
        assert kind == "TimeLimitError"
        assert "rank 2 did not arrive within 0.3 s" in message
        assert "rank 2 is at #1 barrier" in message


@pytest.mark.parametrize("when", ["before the first call", "between calls", "in a large call"])
def test_a_rank_that_is_killed_is_named_by_all_others(when: str) -> None:
    outcomes = spawn_all(3, f"{RANKS_PY}:one_is_killed", {"when": when}, timeout_s=40)
    assert outcomes[1].status == -9
    for rank in (0, 2):
        kind, message = outcomes[rank].result
        assert kind == "PeerLostError"
        assert f"rank 1 (pid {outcomes[1].pid}) has died" in message


def test_a_closed_communicator_says_so_here_and_to_the_others() -> None:
    answers = _spawn(2, "one_has_closed")
    assert answers[0][0] == answers[1][0] == "ClosedError"
    assert "rank 0 has closed the communicator" in answers[1][1]


def test_a_communicator_that_came_with_a_fork_is_of_no_use_and_says_so() -> None:
    assert all("forked" in answer for answer in _spawn(2, "forked"))


def test_more_ranks_than_cores_work() -> None:
    assert _spawn(16, "arrays_of_any_layout") == [None] * 16


def test_misuse_is_explained() -> None:
    with farandole.init(environ={}) as alone:
        x = np.ones(6, np.float32)
        cases: list[tuple[type[Exception], str, Any]] = [
            (UnknownNameError, "no reduction is called 'som'; did you mean 'sum'", lambda: alone.all_reduce(x, "som")),
            (UnsupportedError, "max is for numbers with an order", lambda: alone.all_reduce(x * 1j, "max")),
            (UsageError, "array must be a NumPy array, not list", lambda: alone.all_reduce([1.0])),  # type: ignore[arg-type]
            (LengthError, r"out must have shape \(6,\), not \(5,\)", lambda: alone.all_reduce(x, out=x[:5].copy())),
            (UnsupportedError, "out must have dtype float32", lambda: alone.all_reduce(x, out=np.ones(6))),
            (UnsupportedError, "foreign byte order", lambda: alone.broadcast(x.astype(">f4"))),
            (UnsupportedError, "Python objects", lambda: alone.broadcast(np.array([None]))),
            (UsageError, "the root must be one of the ranks 0 to 0, not 2", lambda: alone.broadcast(x, 2)),
            (LengthError, "array must have 5 rows, as counts say, not 6", lambda: alone.all_gather(x, counts=[5])),
            (LengthError, "one per rank", lambda: alone.all_gather(x, counts=[3, 3])),
            (UsageError, "scale goes with the sum", lambda: alone.all_reduce(x, "max", scale=2.0)),
            (UsageError, "cannot send to itself", lambda: alone.send(x, 0)),
            (UsageError, "a color is 0 or more", lambda: alone.split(-2)),
        ]
        for kind, words, call in cases:
            with pytest.raises(kind, match=words):
                call()
        frozen = x.copy()
        frozen.flags.writeable = False
        with pytest.raises(UsageError, match="read-only"):
            alone.all_reduce(frozen)
    with pytest.raises(UsageError, match="multiple of 4096"):
        farandole.init(environ={}, slot_bytes=1000)


def test_a_shared_array_on_some_ranks_only_is_an_error_on_every_rank_that_says_so() -> None:
    for message in _spawn(3, "a_shared_array_on_some_ranks_only"):
        assert "shared array 1" in message
        assert "rank 1 is at" in message


def test_shared_arrays_of_different_sizes_are_an_error_on_every_rank() -> None:
    assert _spawn(2, "shared_arrays_of_different_sizes") == ["MismatchError"] * 2


def test_ranks_must_agree_on_determinism() -> None:
    first, second = _spawn(2, "determinism_that_ranks_do_not_agree_on")
    assert first == "rank 0"
    assert "rank 1 passes deterministic=False, and rank 0, which decides, has chosen True" in second
