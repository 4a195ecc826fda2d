"""Large worlds are priced without a list of their transfers, and as if they had one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from farandole.algorithms import build
from farandole.algorithms.registry import Option, find, typed
from farandole.algorithms.registry import parse as parse_algorithm
from farandole.cluster import parse
from farandole.cluster.routing import Torus
from farandole.errors import OptionError, UnsupportedError
from farandole.schedule import Round, Schedule
from farandole.simulate import Settings, pattern, predict, simulate, worlds
from farandole.simulate.arcs import lines
from farandole.simulate.large import everyone
from farandole.simulate.short import SHORT, Everyone, Same, parts_of

Pairs = list[tuple[int, int, bool]]


def listed(collective: str, name: str, n: int) -> list[Pairs]:
    return [transfers(round_) for round_ in build(collective, name, n).rounds]


def transfers(round_: Round) -> Pairs:
    columns = (round_.src.tolist(), round_.dst.tolist(), round_.count.tolist(), round_.reduce.tolist())
    return sorted((s, d, r) for s, d, c, r in zip(*columns, strict=True) for _ in range(c))


def told(collective: str, name: str, n: int, options: Mapping[str, Option] | None = None) -> list[Pairs]:
    rounds: list[Pairs] = []
    for part in parts_of(collective, name, n, options or {}) or []:
        if isinstance(part, Same):
            rounds += [transfers(part.round)] * part.repeat
        elif isinstance(part, Everyone):
            rounds.append(
                [(s, d, part.reduce) for s in range(n) for d in range(n) if s != d for _ in range(part.count)]
            )
        else:
            rounds += [sorted((s, (s + distance) % n, False) for s in range(n)) for distance in part.distances]
    return rounds


@pytest.mark.parametrize(("collective", "name"), sorted(SHORT))
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 12])
def test_the_short_form_of_an_algorithm_is_its_list(collective: str, name: str, n: int) -> None:
    assert told(collective, name, n) == listed(collective, name, n)
    assert find(collective, name)


@pytest.mark.parametrize(
    "levels", ["2x6", "3x2x2", "3x4,inside=direct", "4x3,across=tree", "6x2,inside=bidirectional_ring"]
)
def test_a_hierarchy_in_short_is_its_list_whatever_its_levels(levels: str) -> None:
    name, texts = parse_algorithm(f"hierarchical:levels={levels}")
    options = typed(find("all_reduce", name), texts)
    assert told("all_reduce", name, 12, options) == listed("all_reduce", f"hierarchical:levels={levels}", 12)


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(OptionError, match="colour"):
        predict("all_reduce", "ring:colour=red", parse("switch:4"), 1024)


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
    ("ring:12", "all_to_all", "direct"),
    ("ring:12", "all_to_all", "pairwise"),
    ("ring:13", "all_reduce", "direct"),
    ("torus:2x3x4", "all_reduce", "direct"),
    ("torus:4x8", "all_reduce", "torus:sides=4x8"),
    ("hosts:8x4", "all_reduce", "hierarchical:levels=4x8"),
    ("full:12", "all_to_all", "bruck"),
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
@pytest.mark.parametrize("spec", ["torus:3x4x2", "fat-tree:4", "hosts:4x3", "torus:5x4", "ring:9@50GB/s,0us"])
def test_rounds_at_a_distance_take_what_they_take_one_by_one(spec: str) -> None:
    """Ranks that are not in step overlap rounds, so a barrier after each is what the price stands for."""
    cluster = parse(spec).with_costs(startup_s=1e-6)
    schedule = build("all_to_all", "pairwise", cluster.ranks)
    size = 4096 * cluster.ranks
    alone = [
        simulate(Schedule("all_to_all", cluster.ranks, schedule.chunks, (round_,)), cluster, size)
        for round_ in schedule.rounds
    ]
    large = predict("all_to_all", "pairwise", cluster, size)
    latency = 6 * float(cluster.latency_s.max())
    assert large.time_s == pytest.approx(sum(one.time_s for one in alone), rel=1e-9, abs=latency * len(alone))
    assert large.time_s > sum(one.time_s for one in alone) * (1 - 1e-9)
    assert np.allclose(large.link_bytes.sum(), sum(one.link_bytes.sum() for one in alone))


def test_arcs_tell_what_lists_of_links_tell() -> None:
    cluster = parse("torus:5x2x4x1x3")
    router = cluster.router
    assert isinstance(router, Torus)
    rng = np.random.default_rng(7)
    src, dst = rng.integers(0, cluster.ranks, (2, 300), dtype=np.int32)
    arcs, listed_ = lines(router).arcs(src, dst), [set(row[row >= 0].tolist()) for row in cluster.routes(src, dst)]
    weight, values = rng.random(300), rng.random(cluster.link_count)
    by_place = np.append(values, 0.0)[arcs.link]
    assert arcs.hops == sum(map(len, listed_))
    assert np.allclose(arcs.total(by_place), [sum(values[link] for link in row) for row in listed_])
    assert arcs.greatest(by_place).tolist() == [max((values[link] for link in row), default=-np.inf) for row in listed_]
    load, raised = np.zeros(cluster.link_count), values.copy()
    for row, amount in zip(listed_, weight.tolist(), strict=True):
        for link in row:
            load[link] += amount
            raised[link] = max(raised[link], amount)
    real = arcs.link >= 0
    assert np.allclose(arcs.load(weight)[real], load[arcs.link[real]])
    assert np.array_equal(arcs.raised(by_place, weight)[real], raised[arcs.link[real]])


def test_a_torus_whose_routes_are_not_listed_is_not_far_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "LISTED_RANKS", 0)
    monkeypatch.setattr(pattern, "LISTED_HOPS", 0)
    cluster = parse("torus:4x4x4")
    for name in ("halving_doubling", "recursive_doubling", "double_tree", "parameter_server"):
        large = predict("all_reduce", name, cluster, 2**20)
        small = simulate(build("all_reduce", name, 64), cluster, 2**20)
        assert "not exact" in large.note
        assert 0.9 < large.time_s / small.time_s < 1.6
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


def test_a_ring_over_links_of_many_latencies_takes_what_it_takes_round_by_round() -> None:
    """Round by round no two of a rank's rounds take equally long, and the fast way must say the same."""
    cluster = parse("ring:97@50GB/s,1us")
    uneven = replace(
        cluster, latency_s=(1e-6 * (1 + np.arange(cluster.link_count) % 7)).astype(np.float64), alike=False, period=0
    )
    for costs in ((0.0, 0.0), (1e-6, 1e-10)):
        priced = uneven.with_costs(*costs)
        schedule = build("all_reduce", "ring", 97)
        fast = simulate(schedule, priced, 97 * 4096)
        slow = simulate(schedule, priced, 97 * 4096, trace=True)  # a trace needs every round
        assert fast.time_s == pytest.approx(slow.time_s, rel=1e-12)
        assert fast.engine == slow.engine == "rounds"


def test_a_late_rank_holds_up_a_large_ring() -> None:
    cluster = parse("switch:1500@100Gbit/s,2us")
    usual = predict("all_reduce", "ring", cluster, 2**20)
    late = predict("all_reduce", "ring", cluster, 2**20, settings=Settings(delays={7: 1.0}))
    assert late.time_s - 0.5 * usual.time_s >= 1.0
    assert late.time_s <= 1.0 + usual.time_s * (1 + 1e-9)


def test_a_rank_that_reduces_from_thousands_has_a_critical_path_all_the_same() -> None:
    result = predict("reduce", "direct", parse("dgx-h100:1000"), 1 << 30)
    assert sum(hop.end_s - hop.start_s for hop in result.hops) == pytest.approx(result.time_s, rel=1e-9)
    assert len(result.critical_path()) < 10
