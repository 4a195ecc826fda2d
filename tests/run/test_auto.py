from __future__ import annotations

import pytest

from farandole.algorithms import build
from farandole.collectives import COLLECTIVES
from farandole.run.auto import TABLE, choose, rule

KIB = 1 << 10


@pytest.mark.parametrize(
    ("ranks", "cores", "last_bytes", "algorithm", "after"),
    [
        (2, 2, 28 * KIB, "naive", "direct"),  # a core for each rank
        (8, 8, 4 * KIB, "naive", "direct"),
        (8, 0, 4 * KIB, "naive", "direct"),  # nobody knows
        (3, 2, 32 * KIB, "naive", "direct"),  # more ranks than cores
        (4, 2, 64 * KIB // 3, "naive", "direct"),
        (6, 2, 64 * KIB // 5, "naive", "direct"),
        (8, 2, 24 * KIB // 7, "naive", "parameter_server"),  # more than three of them on each
        (8, 2, 32 * KIB, "parameter_server", "direct"),
        (16, 4, 32 * KIB, "parameter_server", "direct"),
    ],
)
def test_a_short_all_reduce_goes_in_one_round_and_longer_ones_directly(
    ranks: int, cores: int, last_bytes: int, algorithm: str, after: str
) -> None:
    assert choose("all_reduce", ranks, last_bytes, cores) == algorithm
    assert choose("all_reduce", ranks, last_bytes + 1, cores) == after
    assert choose("all_reduce", ranks, 0, cores) == "naive"
    assert choose("all_reduce", ranks, 1 << 40, cores) == "direct"


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_there_is_an_algorithm_for_every_call_and_the_reason_is_that_of_its_row(collective: str) -> None:
    reasons = {row.algorithm: {other.why for other in TABLE if other.algorithm == row.algorithm} for row in TABLE}
    for ranks in (2, 5, 9, 64):
        for cores in (0, 1, 2, 8, 64):
            for size_bytes in (0, 64, 20 * KIB, 1 << 30):
                name = choose(collective, ranks, size_bytes, cores)
                assert build(collective, name, ranks).ranks == ranks
                why = rule(collective, ranks, size_bytes, cores)
                assert why in reasons[name] if name in reasons else "every rank reaches every other" in why
