from __future__ import annotations

import pytest

from farandole.algorithms import build
from farandole.bench.candidates import candidates
from farandole.collectives import COLLECTIVES
from farandole.run.auto import choose

SIZES, CORES = (8, 1 << 20), 2


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 7, 8])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_all_can_be_built_and_the_rules_choices_come_first(collective: str, ranks: int) -> None:
    names = candidates(collective, ranks, SIZES, CORES)
    defaults = {choose(collective, ranks, size, CORES) for size in SIZES}
    assert set(names[: len(defaults)]) == defaults
    assert len(set(names)) == len(names)
    assert all(build(collective, name, ranks).ranks == ranks for name in names)


def test_a_schedule_is_tried_once_by_whatever_names_it_goes() -> None:
    # ring, bruck and doubling are the same on two ranks; in the bidirectional ring each block is two chunks
    assert candidates("all_gather", 2, SIZES, CORES) == ["direct", "bidirectional_ring"]
    assert "bruck" in candidates("all_gather", 8, SIZES, CORES)


def test_what_does_not_fit_the_number_of_ranks_is_left_out() -> None:
    assert any(name.startswith("hierarchical:levels=6,2") for name in candidates("all_reduce", 12, SIZES, CORES))
    assert not any("levels" in name for name in candidates("all_reduce", 7, SIZES, CORES))


def test_what_is_simple_comes_before_what_is_not() -> None:
    names = candidates("all_reduce", 8, SIZES, CORES)
    rounds = [len(build("all_reduce", name, 8).rounds) for name in names[2:]]
    assert rounds == sorted(rounds)
