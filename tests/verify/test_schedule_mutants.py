"""What is proven is right and what is right is proven: changed schedules, against a slow twin and real numbers."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.algorithms import build
from farandole.schedule import Schedule
from farandole.verify import verify_schedule
from naive import schedule_gives_right_values, schedule_is_right
from strategies import KEYS, Mutant, Transfer, mutants, random_schedules, schedules, transfers, with_transfers


def _is_rejected(schedule: Schedule) -> bool:
    return not verify_schedule(schedule).ok


@settings(max_examples=250, deadline=None)
@given(mutants())
def test_a_changed_schedule_is_rejected_exactly_when_it_breaks_a_rule_or_misses_its_end(mutant: Mutant) -> None:
    assert verify_schedule(mutant.schedule).ok == schedule_is_right(mutant.schedule)


@settings(max_examples=250, deadline=None)
@given(mutants(), st.integers(0, 99))
def test_a_changed_schedule_that_is_accepted_gives_the_right_values(mutant: Mutant, seed: int) -> None:
    assert schedule_gives_right_values(mutant.original, seed)
    if verify_schedule(mutant.schedule).ok:
        assert schedule_gives_right_values(mutant.schedule, seed)


@settings(max_examples=150, deadline=None)
@given(random_schedules())
def test_random_transfers_are_judged_like_by_hand(schedule: Schedule) -> None:
    assert verify_schedule(schedule).ok == schedule_is_right(schedule)


@settings(max_examples=80, deadline=None)
@given(schedules(), st.randoms(use_true_random=False))
def test_the_order_of_the_transfers_in_a_round_does_not_matter(schedule: Schedule, random: Random) -> None:
    rounds = transfers(schedule)
    for rows in rounds:
        random.shuffle(rows)
    assert verify_schedule(with_transfers(schedule, rounds)).ok


def _with_changed(schedule: Schedule, number: int, place: int, *instead: Transfer) -> Schedule:
    rounds = transfers(schedule)
    rounds[number][place : place + 1] = instead
    return with_transfers(schedule, rounds)


@pytest.mark.parametrize(("collective", "name"), KEYS)
def test_no_transfer_can_be_dropped_flipped_or_sent_back(collective: str, name: str) -> None:
    """Every algorithm moves only what it must, so each of its transfers counts; and so does its kind."""
    for ranks in (2, 3, 4):
        schedule = build(collective, name, ranks, ranks - 1)
        for number, rows in enumerate(transfers(schedule)):
            for place, (src, dst, chunk, count, reduce) in enumerate(rows):
                assert _is_rejected(_with_changed(schedule, number, place))
                assert _is_rejected(_with_changed(schedule, number, place, (src, dst, chunk, count, not reduce)))
                assert _is_rejected(_with_changed(schedule, number, place, (dst, src, chunk, count, reduce)))


@pytest.mark.parametrize(("collective", "name"), KEYS)
def test_a_transfer_that_is_done_twice_at_once_is_rejected(collective: str, name: str) -> None:
    """A reduction then counts twice, and two copies write one chunk."""
    schedule = build(collective, name, 4, 1)
    for number, rows in enumerate(transfers(schedule)):
        for place, transfer in enumerate(rows):
            twice = _with_changed(schedule, number, place, transfer, transfer)
            expected = "counted-twice" if transfer[4] else "write-conflict"
            assert expected in {problem.rule for problem in verify_schedule(twice).problems}


def test_neighbouring_rounds_can_change_places_exactly_where_neither_needs_the_other() -> None:
    verdicts = set()
    for collective, name in KEYS:
        schedule = build(collective, name, 5, 2)
        for first in range(len(schedule.rounds) - 1):
            rounds = list(schedule.rounds)
            rounds[first], rounds[first + 1] = rounds[first + 1], rounds[first]
            swapped = replace(schedule, rounds=tuple(rounds))
            verdicts.add(verify_schedule(swapped).ok)
            assert verify_schedule(swapped).ok == schedule_is_right(swapped)
    assert verdicts == {True, False}
