from __future__ import annotations

import io

import pytest
from rich.console import Console

from farandole.algorithms import REGISTRY, build
from farandole.schedule import Round, Schedule
from farandole.show.table import Limits, letter, panels, rich_table, show_table
from golden import Golden

DRAWN = [
    ("all_reduce", "ring", 4),
    ("all_reduce", "halving_doubling", 6),
    ("all_reduce", "hierarchical", 8),
    ("all_gather", "bruck", 5),
    ("all_to_all", "bruck", 3),
    ("reduce", "binomial", 5),
    ("barrier", "dissemination", 4),
]


@pytest.mark.parametrize(("collective", "name", "ranks"), DRAWN)
def test_tables_are_as_they_were_drawn(collective: str, name: str, ranks: int, golden: Golden) -> None:
    schedule = build(collective, name, ranks, ranks - 1)
    golden(f"{collective}-{name}-{ranks}.txt", show_table(schedule) + "\n")


def drawn(schedule: Schedule, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, legacy_windows=False)
    console.print(rich_table(schedule, width=width))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def test_the_table_for_a_terminal_is_as_it_was_drawn(golden: Golden) -> None:
    golden("terminal.txt", drawn(build("all_reduce", "ring", 3), width=80))


def test_the_ring_of_the_article_ends_complete_and_got_there_piece_by_piece() -> None:
    """4 cards, 4 blocks: after 3 rounds each card has one complete block, after 6 all of them."""
    states = list(panels(build("all_reduce", "ring", 4), Limits()))
    complete = [sum(cell.complete for row in panel.rows for cell in row) for panel in states]
    assert complete == [0, 0, 0, 4, 8, 12, 16]
    assert [sum(cell.arrived for row in panel.rows for cell in row) for panel in states] == [0] + [4] * 6
    assert [panel.done for panel in states][-2:] == [(False,) * 4, (True,) * 4]
    half = {cell.text for row in states[3].rows for cell in row if cell.complete}
    assert half == {"a0..a3", "b0..b3", "c0..c3", "d0..d3"}


def test_long_sums_are_counted_instead_of_listed() -> None:
    rounds = (Round([2, 4, 6, 8, 10], 0, reduce=True),)
    cell = list(panels(Schedule("reduce", 12, 1, rounds), Limits()))[1].rows[0][0]
    assert str(cell) == ">a:6/12"


def test_two_ranks_next_to_each_other_are_listed_and_three_are_a_run() -> None:
    rounds = (Round([1, 3, 4, 5], 0, reduce=True),)
    cell = list(panels(Schedule("reduce", 7, 1, rounds), Limits()))[1].rows[0][0]
    assert str(cell) == ">a0+a1+a3..a5"


def test_a_large_world_is_shown_in_part_and_says_what_is_left_out() -> None:
    text = show_table(build("all_reduce", "ring", 64))
    assert text.endswith("Left out: 48 more ranks, 52 more chunks, 86 more rounds.")
    assert text.count("round 1 of 63") == 1
    assert max(map(len, text.splitlines())) < 220
    whole = show_table(build("all_reduce", "ring", 20), Limits(20, 20, 38))
    assert "Left out" not in whole
    assert whole.splitlines()[-1].startswith(" 19*  ")


def test_a_terminal_gets_as_many_chunks_as_fit() -> None:
    text = drawn(build("all_reduce", "ring", 8), width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert "Left out: 4 more chunks." in text
    assert "Left out" not in drawn(build("all_reduce", "ring", 8), width=200)
    assert "Left out: 7 more chunks." in " ".join(drawn(build("all_reduce", "ring", 8), width=20).split())


@pytest.mark.parametrize(("collective", "name"), sorted(REGISTRY))
def test_every_algorithm_ends_with_all_ranks_marked_that_must_have_anything(collective: str, name: str) -> None:
    *_, last = panels(build(collective, name, 6, 2), Limits(rounds=100))
    assert last.done == tuple(collective not in ("reduce", "gather") or rank == 2 for rank in range(6))


def test_one_rank_is_done_from_the_start() -> None:
    assert show_table(build("all_reduce", "ring", 1)).splitlines()[-1] == "  0*   a0*"


def test_a_broken_schedule_is_shown_as_it_is() -> None:
    text = show_table(Schedule("all_reduce", 2, 1, (Round([0, 0], [1, 7], reduce=True),)))
    assert text.splitlines()[0] == "a schedule: all_reduce on 2 ranks, one chunk, one round"
    assert text.splitlines()[-2:] == ["   0   a0", "  1*  >a0+a1*"]


def test_letters_go_on_after_z() -> None:
    letters = [letter(chunk) for chunk in range(800)]
    assert letters[:3] + letters[25:29] + letters[701:704] == [
        "a", "b", "c", "z", "aa", "ab", "ac", "zz", "aaa", "aab",
    ]  # fmt: skip
    assert len(set(letters)) == 800
