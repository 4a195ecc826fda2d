"""Going on after a loss: the ranks that are left make a smaller communicator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farandole.run.spawn import spawn_all

RANKS_PY = str(Path(__file__).with_name("shrink_ranks.py"))


def _results(ranks: int, name: str, **arguments: Any) -> list[Any]:
    outcomes = spawn_all(ranks, f"{RANKS_PY}:{name}", arguments, timeout_s=40)
    assert all(outcome.error is None for outcome in outcomes if outcome.status != -9), outcomes
    return [outcome.result for outcome in outcomes]


def _facts(left: list[int], rank: int) -> list[Any]:
    """What the rank that was ``rank`` has to see when those in ``left`` are left."""
    return [left.index(rank), len(left), left, sum(10**other for other in left), left]


@pytest.mark.parametrize(("ranks", "victim"), [(3, 0), (3, 2), (4, 0), (4, 1)])
def test_the_others_go_on_and_nothing_is_left_of_the_old_communicator(ranks: int, victim: int) -> None:
    results = _results(ranks, "one_is_killed", victim=victim)
    left = [rank for rank in range(ranks) if rank != victim]
    assert results[victim] is None
    for rank in left:
        assert results[rank] == [[_facts(left, rank)], True]


def test_it_can_be_done_until_one_rank_is_left() -> None:
    results = _results(3, "one_is_killed", victim=0, cycles=2)
    last = results[1]
    assert last[0] == [_facts([1, 2], 1), [0, 1, [0], 1, [0]]]
    assert last[1]


def test_a_second_death_on_the_way_is_survived() -> None:
    results = _results(4, "one_more_dies_on_the_way")
    assert results[1:3] == [None, None]
    assert [results[0], results[3]] == [_facts([0, 3], 0), _facts([0, 3], 3)]


def test_a_rank_that_is_alive_and_does_not_come_is_named_and_may_come_later() -> None:
    results = _results(3, "one_does_not_come")
    for rank in (0, 1):
        (kind, missing, message), facts = results[rank]
        assert (kind, missing) == ("RendezvousError", [2])
        assert "rank 2 (pid" in message
        assert "did not call shrink() within 1.5 s" in message
        assert facts == _facts([0, 1, 2], rank)
    assert results[2] == _facts([0, 1, 2], 2)


def test_ranks_that_are_in_a_call_hear_of_it_and_can_come() -> None:
    results = _results(3, "nobody_died")
    assert [facts for _, facts, _ in results] == [_facts([0, 1, 2], rank) for rank in range(3)]
    for kind, _, old in results[1:]:
        assert kind.startswith("ClosedError")
        assert "has shrunk the communicator" in kind
        assert old.endswith("shrunk>")


def test_a_rank_that_has_closed_is_left_out_and_cannot_come_back() -> None:
    results = _results(3, "one_has_closed")
    assert results[0] == "shrink: this communicator is closed"
    assert results[1:] == [_facts([1, 2], 1), _facts([1, 2], 2)]


def test_a_world_of_one_stays_one() -> None:
    assert _results(1, "alone") == [[0, 1, [0], 1, [0]]]
