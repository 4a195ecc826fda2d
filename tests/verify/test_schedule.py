from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from farandole.algorithms import build
from farandole.collectives import COLLECTIVES
from farandole.errors import ScheduleError, UsageError
from farandole.schedule import Round, Schedule
from farandole.verify import (
    Problem,
    contributions,
    contributions_after,
    members,
    states,
    verify_schedule,
)
from strategies import KEYS

FACTS = ("rule", "rank", "round", "chunk")


def _facts(problem: Problem) -> tuple[Any, ...]:
    return tuple(getattr(problem, fact) for fact in FACTS)


def _problems(collective: str, ranks: int, chunks: int, *rounds: Round, root: int = 0) -> list[tuple[Any, ...]]:
    return [_facts(p) for p in verify_schedule(Schedule(collective, ranks, chunks, rounds, root)).problems]


# Schedules that are right ------------------------------------------------------------------------------


@pytest.mark.parametrize(("collective", "name"), KEYS)
def test_every_algorithm_is_proven_for_every_world_size_and_root(collective: str, name: str) -> None:
    for ranks in range(1, 18):
        for root in {0, ranks // 2, ranks - 1} if COLLECTIVES[collective].rooted else {0}:
            schedule = build(collective, name, ranks, root)
            report = verify_schedule(schedule)
            assert report.problems == (), (ranks, root)
            assert report.transfers == schedule.transfers
            assert report.smallest_safe_depth is None


@pytest.mark.parametrize(("collective", "name"), KEYS)
@pytest.mark.parametrize("ranks", [33, 48, 64])
def test_every_algorithm_is_proven_for_larger_worlds(collective: str, name: str, ranks: int) -> None:
    assert verify_schedule(build(collective, name, ranks, ranks // 3)).ok


def test_a_ring_of_1024_ranks_is_proven() -> None:
    schedule = build("all_reduce", "ring", 1024)
    report = verify_schedule(schedule)
    assert report.ok
    assert report.transfers == 2 * 1023 * 1024


def test_a_large_ring_that_lacks_a_single_transfer_is_not() -> None:
    *rounds, last = build("all_reduce", "ring", 200).rounds
    cut = Round(last.src[1:], last.dst[1:], last.chunk[1:])
    (problem,) = verify_schedule(Schedule("all_reduce", 200, 200, (*rounds, cut))).problems
    assert _facts(problem) == ("missing", 1, -1, int(last.chunk[0]))
    assert problem.expected == "ranks 0-199"


@pytest.mark.parametrize("options", ["order=3,1,4,0,2", "order=4,3,2,1,0"])
def test_a_ring_in_any_order_is_proven(options: str) -> None:
    for collective in ("all_reduce", "reduce_scatter", "all_gather"):
        assert verify_schedule(build(collective, f"ring:{options}", 5)).ok


def test_a_world_of_one_rank_needs_nothing() -> None:
    assert verify_schedule(Schedule("all_reduce", 1, 1, ())).ok
    assert verify_schedule(Schedule("all_to_all", 1, 3, ())).ok


def test_the_report_carries_the_name_of_the_schedule() -> None:
    assert verify_schedule(build("all_reduce", "ring", 2)).name == "ring"
    assert verify_schedule(Schedule("all_reduce", 1, 1, ())).name == "all_reduce"


# Rules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("src", "dst", "chunk", "count", "facts"),
    [
        (0, 3, 0, 1, ("range", 0, 0, 0)),
        (3, 0, 0, 1, ("range", 3, 0, 0)),
        (-1, 0, 0, 1, ("range", -1, 0, 0)),
        (0, -1, 0, 1, ("range", 0, 0, 0)),
        (0, 1, 2, 1, ("range", 0, 0, 2)),
        (0, 1, -1, 1, ("range", 0, 0, -1)),
        (0, 1, 1, 2, ("range", 0, 0, 1)),
        (0, 1, 0, 0, ("range", 0, 0, 0)),
        (0, 1, 2**31 - 1, 2**31 - 1, ("range", 0, 0, 2**31 - 1)),
    ],
)
def test_ranks_and_chunks_that_do_not_exist_are_out_of_range(
    src: int, dst: int, chunk: int, count: int, facts: tuple[Any, ...]
) -> None:
    assert facts in _problems("all_reduce", 3, 2, Round(src, dst, chunk, count))


def test_a_rank_must_not_send_to_itself() -> None:
    (problem,) = verify_schedule(Schedule("broadcast", 1, 2, (Round(0, 0, 1),))).problems
    assert _facts(problem) == ("self-send", 0, 0, 1)
    assert problem.message == "round 1: rank 0 sends chunk 1 to itself"


def test_what_is_sent_must_be_held() -> None:
    assert _problems("broadcast", 3, 1, Round(1, 2), Round(0, [1, 2])) == [("not-held", 1, 0, 0)]
    assert _problems("broadcast", 3, 1, Round([0, 1], [1, 2]), Round(0, 2)) == [("not-held", 1, 0, 0)]


def test_what_is_reduced_into_must_be_held() -> None:
    assert _problems("broadcast", 2, 2, Round(0, 1, [0, 1], reduce=[True, False])) == [("not-held", 1, 0, 0)]


def test_a_contribution_must_not_be_counted_twice() -> None:
    (problem,) = verify_schedule(
        Schedule("reduce", 3, 1, (Round(2, 1, reduce=True), Round([1, 2], 0, reduce=True)))
    ).problems
    assert _facts(problem) == ("counted-twice", 0, 1, 0)
    assert problem.got == "rank 2 twice"
    assert problem.message == "round 2: in chunk 0 at rank 0, the contribution of rank 2 is counted twice"


def test_a_copy_must_be_the_only_write_to_its_chunk_in_a_round() -> None:
    both_copy = _problems("broadcast", 3, 2, Round(0, [1, 2], 0, 2), Round([0, 2], 1, [0, 1], [2, 1]))
    assert both_copy == [("write-conflict", 1, 1, 1)]
    (problem, *_) = verify_schedule(Schedule("all_reduce", 3, 1, (Round([1, 2], 0, reduce=[True, False]),))).problems
    assert _facts(problem) == ("write-conflict", 0, 0, 0)
    assert problem.got == "1 copies in 2 writes"


def test_a_copy_and_reductions_in_different_rounds_do_not_conflict() -> None:
    assert _problems("all_reduce", 2, 1, Round(1, 0, reduce=True), Round(0, 1)) == []


@pytest.mark.parametrize(
    ("collective", "ranks", "chunks", "missing"),
    [
        ("all_reduce", 2, 1, [(0, 0), (1, 0)]),
        ("reduce_scatter", 2, 2, [(0, 0), (1, 1)]),
        ("all_gather", 2, 2, [(0, 1), (1, 0)]),
        ("barrier", 2, 2, [(0, 1), (1, 0)]),
        ("broadcast", 3, 1, [(0, 0), (2, 0)]),
        ("reduce", 3, 1, [(1, 0)]),
        ("gather", 3, 3, [(1, 0), (1, 2)]),
        ("scatter", 3, 3, [(0, 0), (2, 2)]),
        ("all_to_all", 2, 4, [(0, 2), (1, 1)]),
    ],
)
def test_without_transfers_everything_that_must_move_is_missing(
    collective: str, ranks: int, chunks: int, missing: list[tuple[int, int]]
) -> None:
    root = 1 if collective in ("broadcast", "reduce", "gather", "scatter") else 0
    expected = [("missing", rank, -1, chunk) for rank, chunk in missing]
    assert _problems(collective, ranks, chunks, root=root) == expected


def test_what_is_missing_is_named() -> None:
    rounds = (Round([1, 2, 4], 0, reduce=True), Round(0, [1, 2, 3, 4, 5]))
    problems = verify_schedule(Schedule("all_reduce", 6, 1, rounds)).problems
    assert [_facts(problem) for problem in problems] == [("missing", rank, -1, 0) for rank in range(6)]
    assert problems[0].message == (
        "at the end, chunk 0 of rank 0 has contributions of ranks 0-2, 4: it lacks ranks 3, 5"
    )
    assert (problems[0].expected, problems[0].got) == ("ranks 0-5", "ranks 0-2, 4")


def test_a_block_that_belongs_to_one_rank_cannot_be_summed() -> None:
    rounds = (Round([0, 1], [1, 0], [0, 1]), Round(0, 1, 0, reduce=True))
    assert _problems("all_gather", 2, 2, *rounds) == [("counted-twice", 1, 1, 0)]


def test_all_problems_are_found_not_the_first() -> None:
    rounds = (
        Round([0, 1], [9, 1]),
        Round([1, 2], 0, reduce=[True, False]),
        Round([2, 2], [1, 0], [1, 1], reduce=True),
        Round([2, 2], [1, 0], [1, 1], reduce=True),
    )
    rules = Counter(rule for rule, *_ in _problems("all_reduce", 3, 2, *rounds))
    assert rules.keys() == {"range", "self-send", "write-conflict", "counted-twice", "missing"}
    assert rules["counted-twice"] >= 2


def test_at_most_a_thousand_problems_are_listed() -> None:
    assert len(verify_schedule(Schedule("all_reduce", 40, 40, ())).problems) == 1000
    range_problems = Schedule("all_reduce", 2, 1, tuple(Round(0, 5) for _ in range(1100)))
    assert len(verify_schedule(range_problems).problems) == 1000


def test_chunks_must_fit_the_collective() -> None:
    with pytest.raises(UsageError, match="all_to_all on 3 ranks has 9 blocks"):
        verify_schedule(Schedule("all_to_all", 3, 3, ()))


def test_a_rejected_schedule_can_be_raised_with_its_problems() -> None:
    report = verify_schedule(Schedule("all_reduce", 20, 1, ()))
    with pytest.raises(ScheduleError, match=r"^all_reduce is rejected:\n(.*\n){10}  and 10 more$") as info:
        report.raise_if_wrong()
    assert info.value.facts["problems"] == report.problems


# States ------------------------------------------------------------------------------------------------


def test_contributions_grow_round_by_round() -> None:
    schedule = build("all_reduce", "ring", 4)
    sizes = [int(np.bitwise_count(contributions(schedule, rounds)).sum()) for rounds in range(7)]
    # In each of three rounds, four chunks gain: one, two, three partners; then copies replace what is there.
    assert sizes[:4] == [16, 20, 28, 40]
    assert sizes[-1] == 4 * 4 * 4
    assert np.array_equal(contributions(schedule), contributions(schedule, 6))


def test_states_are_the_same_as_contributions_after_each_round() -> None:
    schedule = build("all_reduce", "halving_doubling", 6)
    for rounds, state in enumerate(states(schedule)):
        assert np.array_equal(state, contributions(schedule, rounds))
    assert rounds == len(schedule.rounds)
    assert (state == contributions_after(schedule)).all()


def test_members_reads_a_bit_set_of_several_words() -> None:
    assert members(np.array([1 << 63 | 1, 2], np.uint64)) == [0, 63, 65]
    assert members(np.zeros(2, np.uint64)) == []
