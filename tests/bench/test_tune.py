from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import farandole
from farandole.bench import tune as module
from farandole.bench import tune_rank
from farandole.bench.data import expected
from farandole.bench.tune import Contest, measure, plan, undecided
from farandole.bench.tune_rank import DROP_FROM_ROUND, MOST_ROUNDS, PARTS, run_contests
from farandole.collectives import COLLECTIVES
from farandole.errors import CommunicationError, UnknownNameError, UsageError
from farandole.run.auto import choose
from farandole.run.machine import this_machine
from farandole.run.spawn import spawn


def test_the_default_is_the_first_of_every_contest() -> None:
    contests = plan([2, 4], [64, 1 << 20])
    assert {c.ranks for c in contests} == {2, 4}
    assert {c.collective for c in contests if c.ranks == 4} == set(COLLECTIVES) - {"barrier"}
    cores = this_machine().cores
    for contest in contests:
        assert contest.algorithms[0] == choose(contest.collective, contest.ranks, contest.size_bytes, cores)
        assert len(set(contest.algorithms)) == len(contest.algorithms) > 1


def test_jobs_come_one_after_the_other_and_sizes_ascend() -> None:
    contests = plan([4, 2, 4], [4096, 64, 4096], ["all_gather", "all_reduce"])
    assert [(c.ranks, c.size_bytes, c.collective) for c in contests] == [
        (n, size, name) for n in (2, 4) for size in (64, 4096) for name in ("all_gather", "all_reduce")
    ]


def test_what_takes_longer_gets_more_time() -> None:
    two, large = Contest("all_reduce", 2, 64, ("a", "b")), Contest("all_reduce", 2, 1 << 20, ("a", "b"))
    crowded, many = Contest("all_reduce", 8, 64, ("a", "b")), Contest("all_reduce", 2, 64, ("a", "b", "c"))
    assert all(other.weight(2) > two.weight(2) for other in (large, crowded, many))
    assert crowded.weight(8) == two.weight(8)


@pytest.mark.parametrize(
    ("ranks", "sizes", "collectives", "kind", "words"),
    [
        ([1], [64], [], UsageError, "on 2 ranks or more, not on 1"),
        ([2], [2], [], UsageError, "a multiple of 4 bytes, not 2"),
        ([2], [66], [], UsageError, "a multiple of 4 bytes, not 66"),
        ([2], [64], ["all_reduse"], UnknownNameError, "did you mean 'all_reduce'"),
        ([2], [64], ["broadcast", "barrier"], UsageError, "each of broadcast, barrier has one algorithm"),
    ],
)
def test_misuse_is_explained(
    ranks: list[int], sizes: list[int], collectives: list[str], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        plan(ranks, sizes, collectives)


def pretend(monkeypatch: pytest.MonkeyPatch, time_of: Callable[[Mapping[str, Any], str, int], float]) -> list[float]:
    """Let no process run, but ``time_of(contest, algorithm, ranks)`` be the time of each call; the jobs' budgets."""
    budgets: list[float] = []

    def answer(ranks: int, _: str, arguments: Mapping[str, Any], **__: Any) -> list[Any]:
        budgets.append(arguments["budget_s"])
        found = [
            {name: [time_of(contest, name, ranks)] * MOST_ROUNDS for name in contest["algorithms"]}
            for contest in arguments["contests"]
        ]
        return [found] * ranks

    monkeypatch.setattr(module, "spawn", answer)
    return budgets


def test_the_profile_has_the_winners_and_all_that_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def time_of(contest: Mapping[str, Any], name: str, ranks: int) -> float:
        return (1.0 if name == "ring" and contest["size_bytes"] > 64 else 2.0) * ranks

    budgets = pretend(monkeypatch, time_of)
    profile = farandole.tune([4, 3], [64, 4096], ["all_gather", "all_reduce"], budget_s=10)
    assert [(t.collective, t.ranks) for t in profile.tables] == [
        ("all_gather", 3), ("all_gather", 4), ("all_reduce", 3), ("all_reduce", 4),
    ]  # fmt: skip
    cores = this_machine().cores
    for table in profile.tables:
        short = choose(table.collective, table.ranks, 64, cores)
        assert [(p.size_bytes, p.algorithm, p.default) for p in table.points] == [
            (64, short, short),
            (4096, "ring", choose(table.collective, table.ranks, 4096, cores)),
        ]
        first = table.points[1].measured[0]
        assert (first.algorithm, first.median_s, first.rounds) == ("ring", float(table.ranks), MOST_ROUNDS)
        assert not undecided(table.points[1])
    assert 0 < budgets[0] < budgets[1] <= 10  # the job of 3 ranks, then that of 4 with all that is left


def test_real_ranks_measure_every_algorithm_of_every_collective_and_find_their_results_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FARANDOLE_DETERMINISTIC", "1")  # which would forbid most of them
    monkeypatch.setenv("FARANDOLE_PROFILE", "/there is none")
    contests = plan([3], [1204], [])  # 301 elements: the ranks' parts are uneven
    begun: list[Any] = []
    profile = measure(contests, budget_s=0, progress=begun.append)
    assert len(begun) == PARTS * len(contests)
    points = {(t.collective, p.size_bytes): p for t in profile.tables for p in t.points}
    assert set(points) == {(c.collective, c.size_bytes) for c in contests}
    for contest in contests:
        point = points[contest.collective, contest.size_bytes]
        assert {row.algorithm for row in point.measured} == set(contest.algorithms)
        assert all(0 < row.low_s <= row.median_s <= row.high_s for row in point.measured)
        # Without time there is one round in each part, and they decide nothing.
        assert {row.rounds for row in point.measured} == {PARTS}
        assert undecided(point)
        assert point.algorithm == point.default == contest.algorithms[0]


@pytest.mark.parametrize("after", [DROP_FROM_ROUND, MOST_ROUNDS // PARTS])  # in a part, and in its last round
def test_with_time_there_are_all_rounds_for_those_that_stay(after: int) -> None:
    rounds = {"naive": MOST_ROUNDS, "ring": after, "tree": after, "direct": MOST_ROUNDS}
    for answer in spawn(2, f"{__file__}:_run_with_time", {"gone": ["ring", "tree"], "after": after}, timeout_s=40):
        assert {name: len(times) for name, times in answer.items()} == rounds


def test_a_contest_is_over_when_only_the_default_is_left() -> None:
    gone = {"gone": ["ring", "tree", "direct"], "after": DROP_FROM_ROUND}
    for answer in spawn(2, f"{__file__}:_run_with_time", gone, timeout_s=40):
        assert {len(times) for times in answer.values()} == {DROP_FROM_ROUND}


def _run_with_time(gone: list[str], after: int) -> Any:
    """In a rank: some are declared hopeless as soon as that is looked at after so many rounds."""

    def hopeless(times: Mapping[str, list[float]], default: str) -> set[str]:
        return {*gone} & set(times) if len(times[default]) >= after else set()

    pytest.MonkeyPatch().setattr(tune_rank, "hopeless", hopeless)
    algorithms = ["naive", "ring", "tree", "direct"]
    contest = {"collective": "all_reduce", "size_bytes": 64, "algorithms": algorithms, "weight": 1.0}
    return run_contests([contest], {}, 600.0, lambda _: None)[0]


def test_a_wrong_result_is_an_error_that_names_the_algorithm() -> None:
    with pytest.raises(CommunicationError, match=r"all_gather by direct on 2 ranks, 1024 bytes: the result is wrong"):
        spawn(2, f"{__file__}:_run_with_wrong_expectations", {}, timeout_s=40)


def _run_with_wrong_expectations() -> None:
    """In a rank: NumPy says that the last element of rank 1 is another one."""

    def changed(*arguments: Any, **settings: Any) -> Any:
        want = expected(*arguments, **settings)
        assert want is not None
        return want if arguments[2] == 0 else np.append(want[:-1], want[-1] + 1)

    pytest.MonkeyPatch().setattr(tune_rank, "expected", changed)
    contest = {"collective": "all_gather", "size_bytes": 1024, "algorithms": ["direct", "ring"], "weight": 1.0}
    run_contests([contest], {}, 1.0, lambda _: None)
