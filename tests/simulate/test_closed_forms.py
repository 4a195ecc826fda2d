"""On networks where nothing shares a link, the simulator must give the textbook's closed forms."""

from __future__ import annotations

import math

import pytest

from farandole.algorithms import REGISTRY, build
from farandole.cluster import parse
from farandole.cost import Rates, price
from farandole.simulate import simulate

ALPHA, BETA, GAMMA = 3e-6, 1 / 2e9, 1 / 5e9
EXACT = pytest.approx


def time_of(name: str, ranks: int, size: int, engine: str) -> float:
    cluster = parse(f"switch:{ranks}@2GB/s,3us").with_costs(reduce_s_per_byte=GAMMA)
    return simulate(build("all_reduce", name, ranks), cluster, size, engine=engine).time_s


@pytest.mark.parametrize("engine", ["rounds", "events"])
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_all_reduce_takes_what_the_textbook_says(ranks: int, engine: str) -> None:
    n, size = ranks, 4096 * ranks * 1000
    log, share = int(math.log2(n)), (n - 1) / n * size
    expected = {
        "ring": 2 * (n - 1) * ALPHA + 2 * share * BETA + share * GAMMA,
        "halving_doubling": 2 * log * ALPHA + 2 * share * BETA + share * GAMMA,
        "recursive_doubling": log * (ALPHA + size * (BETA + GAMMA)),
        "tree": 2 * log * (ALPHA + size * BETA) + log * size * GAMMA,
        "direct": 2 * ALPHA + 2 * share * BETA + share * GAMMA,
        "parameter_server": 2 * ALPHA + 2 * (n - 1) * size * BETA + (n - 1) * size * GAMMA,
        "naive": ALPHA + (n - 1) * size * (BETA + GAMMA),
    }
    for name, time_s in expected.items():
        assert time_of(name, n, size, engine) == EXACT(time_s, rel=1e-12), name


@pytest.mark.parametrize(("collective", "name"), sorted(REGISTRY))
@pytest.mark.parametrize("ranks", [4, 8])
def test_every_algorithm_takes_what_cost_says_for_powers_of_two(collective: str, name: str, ranks: int) -> None:
    schedule = build(collective, name, ranks)
    size = 4096 * ranks * ranks * 8
    result = simulate(schedule, parse(f"switch:{ranks}@2GB/s,3us"), size)
    priced = price(schedule, size, rates=Rates(ALPHA, BETA, 0.0))
    assert result.time_s <= priced.time_s * (1 + 1e-12)
    if name not in ("binomial", "double_tree"):  # where early ranks run ahead, which cost's rounds do not
        assert result.time_s == EXACT(priced.time_s, rel=1e-12)


def test_a_start_up_cost_is_paid_for_each_message_in_turn() -> None:
    cluster = parse("switch:5@2GB/s,3us").with_costs(startup_s=7e-6)
    assert simulate(build("barrier", "dissemination", 5), cluster, 0).time_s == EXACT(3 * 10e-6)
    assert simulate(build("broadcast", "direct", 5), cluster, 0).time_s == EXACT(4 * 7e-6 + 3e-6)


def test_busbw_of_a_ring_is_the_bandwidth_of_its_links_without_latency() -> None:
    result = simulate(build("all_reduce", "ring", 8), parse("ring:8@50GB/s,0us"), 8 * 2**20)
    assert result.busbw == EXACT(50e9)
    assert result.algbw == EXACT(50e9 * 8 / 14)
    assert result.bottleneck == "d0->d1"
    assert result.utilisation().tolist() == EXACT([1.0] * 8 + [0.0] * 8)


def test_a_world_of_one_rank_takes_no_time() -> None:
    result = simulate(build("all_reduce", "ring", 1), parse("switch:4"), 1024, trace=True)
    assert (result.time_s, result.algbw, result.critical_path()) == (0.0, 0.0, [])
    assert result.trace is not None
    assert len(result.trace) == 0
