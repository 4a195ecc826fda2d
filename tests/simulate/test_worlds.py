"""Large worlds are priced without a list of their transfers, and as if they had one."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.algorithms import build
from farandole.algorithms.registry import find
from farandole.cluster import parse
from farandole.errors import UnsupportedError
from farandole.simulate import Settings, predict, simulate, worlds
from farandole.simulate.large import SHORT, Everyone, Same, everyone, parts_of

Pairs = list[tuple[int, int, bool]]


def listed(collective: str, name: str, n: int) -> list[Pairs]:
    return [
        sorted(
            (s, d, r)
            for s, d, c, r in zip(
                round_.src.tolist(), round_.dst.tolist(), round_.count.tolist(), round_.reduce.tolist(), strict=True
            )
            for _ in range(c)
        )
        for round_ in build(collective, name, n).rounds
    ]


def told(collective: str, name: str, n: int) -> list[Pairs]:
    rounds: list[Pairs] = []
    for part in parts_of(collective, name, n, {}) or []:
        if isinstance(part, Same):
            r = part.round
            assert set(r.count.tolist()) == {1}
            row = sorted(zip(r.src.tolist(), r.dst.tolist(), r.reduce.tolist(), strict=True))
            rounds += [row] * part.repeat
        elif isinstance(part, Everyone):
            rounds.append(
                [(s, d, part.reduce) for s in range(n) for d in range(n) if s != d for _ in range(part.count)]
            )
        else:
            counts = part.counts or (1,) * len(part.distances)
            rounds += [
                sorted((s, (s + distance) % n, False) for s in range(n) for _ in range(count))
                for distance, count in zip(part.distances, counts, strict=True)
            ]
    return rounds


@pytest.mark.parametrize(("collective", "name"), sorted(SHORT))
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 12])
def test_the_short_form_of_an_algorithm_is_its_list(collective: str, name: str, n: int) -> None:
    assert told(collective, name, n) == listed(collective, name, n)
    assert find(collective, name)


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "LISTED", 0)
    monkeypatch.setattr(worlds, "LISTED_ROUND", 0)
    monkeypatch.setattr(worlds, "LISTED_RANKS", 0)


EXACT = [
    ("switch:64@1GB/s,2us", "all_reduce", "ring"),
    ("switch:64@1GB/s,2us", "all_reduce", "direct"),
    ("switch:64@1GB/s,2us", "all_reduce", "naive"),
    ("switch:64@1GB/s,2us", "all_to_all", "direct"),
    ("switch:64@1GB/s,2us", "all_to_all", "pairwise"),
    ("switch:64@1GB/s,2us", "all_to_all", "bruck"),
    ("switch:64@1GB/s,2us", "all_reduce", "halving_doubling"),
    ("switch:64@1GB/s,2us", "all_reduce", "hierarchical"),
    ("switch:64@1GB/s,2us", "all_reduce", "torus"),
    ("switch:64@1GB/s,2us", "broadcast", "binomial"),
    ("hosts:8x8", "all_reduce", "ring"),
    ("hosts:8x8", "all_gather", "ring"),
    ("hosts:8x8", "all_reduce", "direct"),
    ("hosts:8x8", "all_reduce", "naive"),
    ("hosts:8x8", "all_to_all", "direct"),
    ("dgx-h100:8", "all_reduce", "ring"),
    ("full:16", "all_reduce", "direct"),
    ("fat-tree:6", "reduce_scatter", "direct"),
    ("ring:32@50GB/s", "all_reduce", "bidirectional_ring"),
]


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize(("spec", "collective", "name"), EXACT)
@pytest.mark.parametrize("reduce_s_per_byte", [0.0, 1e-10])
def test_a_world_priced_as_large_takes_what_it_takes_when_listed(
    spec: str, collective: str, name: str, reduce_s_per_byte: float
) -> None:
    cluster = parse(spec).with_costs(startup_s=0.0, reduce_s_per_byte=reduce_s_per_byte)
    size = 4096 * cluster.ranks * cluster.ranks
    large = predict(collective, name, cluster, size)
    small = simulate(build(collective, name, cluster.ranks), cluster, size)
    assert large.note == ""
    assert large.time_s == pytest.approx(small.time_s, rel=1e-9)
    assert large.rounds == small.rounds
    assert large.busbw == pytest.approx(small.busbw)
    assert np.allclose(large.link_bytes, small.link_bytes)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("collective", ["all_to_all", "reduce_scatter"])
@pytest.mark.parametrize("startup_s", [1e-7, 1e-5])
def test_start_ups_between_all_pairs_are_exact_on_a_switch(collective: str, startup_s: float) -> None:
    cluster = parse("switch:32@1GB/s,2us").with_costs(startup_s, 1e-10)
    size = 4096 * 32 * 32
    large = predict(collective, "direct", cluster, size)
    assert large.time_s == pytest.approx(simulate(build(collective, "direct", 32), cluster, size).time_s, rel=1e-9)


@pytest.mark.usefixtures("everything_is_large")
def test_what_is_not_exact_says_so_and_is_not_far_off() -> None:
    cluster = parse("hosts:6x8")
    large = predict("all_reduce", "recursive_doubling", cluster, 2**20)
    small = simulate(build("all_reduce", "recursive_doubling", 48), cluster, 2**20)
    assert small.engine == "events"
    assert "not exact" in large.note
    assert 0.5 < large.time_s / small.time_s < 1.25


@pytest.mark.usefixtures("everything_is_large")
def test_an_exchange_between_all_pairs_of_an_uneven_cluster_is_not_guessed() -> None:
    cluster = parse("switch:32").with_slow("0-1", 0.5)
    with pytest.raises(UnsupportedError, match="looks different from different ranks"):
        everyone(cluster, Everyone(1, reduce=False), 1.0)


@pytest.mark.parametrize("algorithm", ["ring", "direct", "tree", "parameter_server"])
def test_a_hundred_thousand_ranks_take_what_the_closed_form_says(algorithm: str) -> None:
    n, size, alpha, beta = 131_072, 2**30, 2e-6, 1 / 12.5e9
    expected = {
        "ring": 2 * (n - 1) * alpha + 2 * (n - 1) / n * size * beta,
        "direct": 2 * alpha + 2 * (n - 1) / n * size * beta,
        "tree": 2 * 17 * (alpha + size * beta),
        "parameter_server": 2 * alpha + 2 * (n - 1) * size * beta,
    }
    result = predict("all_reduce", algorithm, parse(f"switch:{n}@100Gbit/s,2us"), size)
    assert result.time_s == pytest.approx(expected[algorithm], rel=1e-7)
    assert result.note == ""


def test_a_late_rank_holds_up_a_large_ring() -> None:
    cluster = parse("switch:1500@100Gbit/s,2us")
    usual = predict("all_reduce", "ring", cluster, 2**20)
    late = predict("all_reduce", "ring", cluster, 2**20, settings=Settings(delays={7: 1.0}))
    assert late.time_s - 0.5 * usual.time_s >= 1.0
    assert late.time_s <= 1.0 + usual.time_s * (1 + 1e-9)
