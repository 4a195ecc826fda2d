from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.bench.contest import LEAST_ROUNDS, LUCK, MARGIN, beats, hopeless, summaries, winner, wins_needed

times = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=15)


def test_the_fastest_replaces_the_default_if_it_is_faster_in_every_round() -> None:
    assert winner({"direct": [3.0] * 8, "tree": [2.0] * 8, "ring": [1.0] * 8}, "direct") == "ring"


def test_the_default_stays_where_the_others_are_slower() -> None:
    assert winner({"direct": [1.0] * 8, "tree": [2.0] * 8}, "direct") == "direct"


def test_the_default_stays_where_another_is_faster_by_less_than_the_margin() -> None:
    almost = 1 - MARGIN * 0.9
    assert winner({"direct": [1.0] * 15, "tree": [almost] * 15}, "direct") == "direct"
    assert winner({"direct": [1.0] * 15, "tree": [1 - MARGIN * 1.1] * 15}, "direct") == "tree"


def test_a_median_that_is_lower_by_luck_does_not_win() -> None:
    default = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    lucky = [0.7, 0.7, 0.7, 0.7, 0.7, 1.4, 1.4, 1.4, 1.4]
    assert not beats(lucky, default)
    assert winner({"direct": default, "tree": lucky}, "direct") == "direct"


def test_what_disturbs_a_round_disturbs_all_in_it_and_decides_nothing() -> None:
    load = [1.0, 9.0, 1.2, 5.0, 1.0, 30.0, 1.1, 2.0]
    assert winner({"direct": load, "tree": [0.8 * x for x in load]}, "direct") == "tree"


@pytest.mark.parametrize("rounds", range(1, LEAST_ROUNDS))
def test_few_rounds_prove_nothing(rounds: int) -> None:
    assert not beats([1.0] * rounds, [100.0] * rounds)


def test_one_that_left_the_contest_is_compared_over_the_rounds_it_had() -> None:
    assert not beats([1.0] * 2, [2.0] * 15)
    assert beats([1.0] * 6, [2.0] * 15)


def test_of_those_that_the_fastest_does_not_beat_the_simplest_is_taken() -> None:
    close = {"direct": [2.0] * 9, "tree": [1.02] * 9, "double_tree": [1.0] * 9}
    assert winner(close, "direct") == "tree"
    apart = {**close, "tree": [1.2] * 9}
    assert winner(apart, "direct") == "double_tree"


@pytest.mark.parametrize("rounds", range(1, 40))
def test_the_wins_needed_are_the_fewest_that_chance_does_not_explain(rounds: int) -> None:
    def chance(wins: int) -> float:
        return sum(math.comb(rounds, k) for k in range(wins, rounds + 1)) / 2.0**rounds

    needed = wins_needed(rounds)
    assert chance(needed) <= LUCK
    assert chance(needed - 1) > LUCK


def test_the_hopeless_leave_and_the_default_never_does() -> None:
    found = hopeless({"direct": [9.0, 9.0], "tree": [1.0, 1.1], "ring": [1.2, 4.0], "torus": [2.0, 1.7]}, "direct")
    assert found == {"torus"}


@given(st.dictionaries(st.sampled_from("abcdef"), times, min_size=1))
def test_whoever_wins_is_the_default_or_beats_it(found: dict[str, list[float]]) -> None:
    default = next(iter(found))
    name = winner(found, default)
    assert name == default or beats(found[name], found[default])
    assert not beats(found[default], found[name])


def test_summaries_are_sorted_and_have_quartiles() -> None:
    rows = summaries({"direct": [5.0, 1.0, 2.0, 4.0, 3.0], "ring": [1.5]})
    assert [(r.algorithm, r.low_s, r.median_s, r.high_s, r.rounds) for r in rows] == [
        ("ring", 1.5, 1.5, 1.5, 1),
        ("direct", 2.0, 3.0, 4.0, 5),
    ]
