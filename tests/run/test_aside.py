"""Ranks that are badly spread over the cores do not stay there; beside a program that computes, they sleep."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from farandole.run.spawn import spawn

RANKS_PY = str(Path(__file__).with_name("aside_ranks.py"))
TRIES, CALLS = 60, 100  # left to the kernel, some 500 calls go by before it moves one


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_rank_steps_aside_and_may_go_back() -> None:
    (first, first_may), (second, second_may) = spawn(
        2, f"{RANKS_PY}:cores_after_one", {"tries": TRIES, "calls": CALLS}, timeout_s=50
    )
    apart = sum(one != other for one, other in zip(first, second, strict=True))
    assert apart >= TRIES // 10  # not where other programs keep all cores busy just then
    assert first_may
    assert second_may


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_more_ranks_than_cores_are_spread_evenly() -> None:
    found = spawn(4, f"{RANKS_PY}:cores_after_uneven", {"tries": TRIES, "calls": 1000}, timeout_s=50)
    even = sum(sorted(Counter(at).values()) == [2, 2] for at in zip(*(cores for cores, _ in found), strict=True))
    assert even >= TRIES * 2 // 3  # left to the kernel, a quarter to a half of them
    assert all(may for _, may in found)


@pytest.mark.parametrize("knows", [False, True])
def test_a_rank_beside_a_busy_program_sleeps(knows: bool) -> None:
    sleeps = spawn(2, f"{RANKS_PY}:sleeps_beside_a_busy_program", {"calls": 400, "knows": knows}, timeout_s=50)
    assert sum(sleeps) >= 200  # one that gives its core away instead never sleeps
