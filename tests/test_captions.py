from __future__ import annotations

import numpy as np
import pytest

from farandole.algorithms import REGISTRY, build
from farandole.captions import arrivals, captions
from farandole.schedule import Round, Schedule


def movements(collective: str, name: str, ranks: int, root: int = 0) -> list[str]:
    """What moves in each round: the captions without their headings and news."""
    sentences = captions(build(collective, name, ranks, root))
    return [sentence.partition("; ")[0].partition(": ")[2] for sentence in sentences]


def only(*columns: object, ranks: int = 4, collective: str = "all_reduce", chunks: int = 1) -> str:
    """The caption of a schedule of one round."""
    (sentence,) = captions(Schedule(collective, ranks, chunks, (Round(*columns),)))  # type: ignore[arg-type]
    return sentence


def test_a_ring_is_told_round_by_round() -> None:
    every = "every rank sends one chunk to the right"
    assert captions(build("all_reduce", "ring", 3)) == [
        f"Reduce-scatter, round 1 of 2: {every}; rank 0 now holds 2 of 3 contributions of chunk 1.",
        f"Reduce-scatter, round 2 of 2: {every}; rank 0 now has 1 of its 3 chunks complete.",
        f"All-gather, round 1 of 2: {every}; rank 0 now has 2 of its 3 chunks complete.",
        f"All-gather, round 2 of 2: {every}; every rank is done.",
    ]


def test_rounds_are_numbered_within_their_phase() -> None:
    headings = [sentence.partition(": ")[0] for sentence in captions(build("all_reduce", "halving_doubling", 6))]
    assert headings == [
        "Reduce-scatter, fold",
        "Reduce-scatter, round 1 of 2",
        "Reduce-scatter, round 2 of 2",
        "All-gather, round 1 of 2",
        "All-gather, round 2 of 2",
        "All-gather, unfold",
    ]


@pytest.mark.parametrize(
    ("collective", "name", "ranks", "expected"),
    [
        ("all_reduce", "bidirectional_ring", 5, "every rank sends one chunk to each side"),
        ("all_reduce", "ring:order=3,2,1,0", 4, "every rank sends one chunk to the left"),
        ("all_reduce", "ring:order=0,2,1,3", 4, "every rank sends one chunk to the next rank of a ring"),
        ("all_reduce", "ring", 2, "the two ranks exchange one chunk"),
        ("all_reduce", "direct", 5, "every rank sends one chunk to every other rank"),
        ("all_reduce", "parameter_server", 5, "every other rank sends one chunk to rank 0"),
        ("all_reduce", "recursive_doubling", 8, "all ranks exchange one chunk in pairs, 1 apart"),
        ("all_reduce", "halving_doubling", 8, "all ranks exchange 4 chunks in pairs, 4 apart"),
        ("all_reduce", "recursive_doubling", 5, "rank 4 sends one chunk to rank 0"),
        (
            "all_reduce",
            "hierarchical:levels=4,2",
            8,
            "in each of 2 rings of 4 ranks, every rank sends 2 chunks onwards",
        ),
        (
            "all_reduce",
            "hierarchical:levels=4,2,inside=direct",
            8,
            "in each group of 4 ranks, every rank sends 2 chunks to every other rank",
        ),
        ("all_reduce", "tree", 8, "4 of 8 ranks each send one chunk to one rank"),
        ("all_reduce", "double_tree", 8, "all ranks send to 4 ranks, one chunk at a time"),
        ("broadcast", "direct", 5, "rank 0 sends one chunk to every other rank"),
        ("barrier", "dissemination", 5, "every rank sends one chunk to the right"),
    ],
)
def test_the_pattern_of_a_round_is_recognised(collective: str, name: str, ranks: int, expected: str) -> None:
    assert movements(collective, name, ranks)[0] == expected


def test_ranks_far_away_are_told_by_the_shorter_way() -> None:
    assert movements("all_to_all", "pairwise", 7) == [
        "every rank sends one chunk to the right",
        "every rank sends one chunk to the rank 2 places to the right",
        "every rank sends one chunk to the rank 3 places to the right",
        "every rank sends one chunk to the rank 3 places to the left",
        "every rank sends one chunk to the rank 2 places to the left",
        "every rank sends one chunk to the left",
    ]


def test_several_servers_are_told_by_their_number() -> None:
    push, pull = movements("all_reduce", "parameter_server:servers=2", 5)
    assert push == "all ranks send to 2 ranks, one chunk at a time"
    assert pull == "2 of 5 ranks each send one chunk to every other rank"


def test_runs_of_different_lengths_are_told_from_the_least_to_the_most() -> None:
    assert movements("all_gather", "doubling", 6)[1] == "4 of 6 ranks exchange 1 to 2 chunks in pairs"
    assert ": every other rank sends 1 to 3 chunks to rank 2;" in only([0, 1], [2, 2], 0, [1, 3], ranks=3, chunks=4)


@pytest.mark.parametrize("root", [0, 3])
def test_the_news_is_of_the_rank_that_has_come_furthest(root: int) -> None:
    sentences = captions(build("reduce", "binomial", 4, root))
    assert sentences[1].endswith("; every rank is done.")
    assert "now holds 2 of 4 contributions of chunk 0." in sentences[0]
    gather = captions(build("gather", "binomial", 4, root))
    assert gather[0].endswith(f"; rank {root} now has 2 of its 4 chunks complete.")
    assert captions(build("broadcast", "binomial", 4, root))[0].endswith(f"; rank {(root + 2) % 4} is done.")


def test_a_broken_schedule_is_told_as_it_is() -> None:
    assert only(0, 9) == "Round 1 of 1: nothing moves, and one transfer outside the world; nothing changes."
    assert only([0, 1], [1, 7]) == (
        "Round 1 of 1: rank 0 sends one chunk to rank 1, and one transfer outside the world;"
        " rank 1 now holds 1 of 4 contributions of chunk 0."
    )
    assert only(2, 2).startswith("Round 1 of 1: rank 2 sends one chunk to rank 2;")
    assert only([], []) == "Round 1 of 1: nothing moves; nothing changes."


def test_what_arrives_is_listed_chunk_by_chunk() -> None:
    schedule = Schedule("all_reduce", 3, 4, ())
    rank, chunk = arrivals(schedule, Round([0, 1, 0], [2, 0, 5], [1, 0, 0], [3, 1, 1]))
    assert list(zip(rank.tolist(), chunk.tolist(), strict=True)) == [(2, 1), (2, 2), (2, 3), (0, 0)]


@pytest.mark.parametrize(("collective", "name"), sorted(REGISTRY))
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 12])
def test_every_round_of_every_algorithm_has_a_sentence_and_the_last_says_done(
    collective: str, name: str, ranks: int
) -> None:
    schedule = build(collective, name, ranks, ranks // 2)
    sentences = captions(schedule)
    assert len(sentences) == len(schedule.rounds)
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in sentences)
    done = ["every rank is done" in sentence for sentence in sentences]
    assert done == [False] * (len(done) - 1) + [True] * (len(done) > 0)


def test_captions_do_not_depend_on_the_order_of_transfers() -> None:
    schedule = build("all_reduce", "double_tree", 11)
    random = np.random.default_rng(0)
    shuffled = []
    for r in schedule.rounds:
        order = random.permutation(len(r))
        shuffled.append(Round(r.src[order], r.dst[order], r.chunk[order], r.count[order], r.reduce[order], r.phase))
    again = Schedule(schedule.collective, schedule.ranks, schedule.chunks, tuple(shuffled))
    assert captions(again) == captions(schedule)
