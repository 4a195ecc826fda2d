"""A world that looks the same from every so many ranks on takes what it takes when all its ranks are gone through."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from farandole.algorithms import build
from farandole.cluster import parse
from farandole.schedule import Round
from farandole.simulate import Settings, predict, simulate, worlds
from farandole.simulate.fold import fold, folding, symmetry
from farandole.simulate.pattern import network
from farandole.simulate.short import SHORT, Same, parts_of

SPECS = [
    "ring:36@50GB/s",
    "switch:48",
    "ethernet:24",
    "full:16",
    "hosts:8x6",
    "dgx-a100:4",
    "dgx-h100:8",
    "pcie:24",
    "torus:4x6",
    "torus:4x2x5",
    "fat-tree:4",
    "fat-tree:6",
]
ROUND_BY_ROUND = sorted(key for key in SHORT if any(isinstance(part, Same) for part in parts_of(*key, 6, {}) or []))


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "LISTED_RANKS", 0)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("collective", "name"), ROUND_BY_ROUND)
def test_a_folded_world_takes_what_it_takes_unfolded(
    spec: str, collective: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = parse(spec)
    size = 4096 * cluster.ranks
    monkeypatch.setattr(worlds, "EVENTS", 0)  # whatever is not exact is so in the same way, then
    folded = predict(collective, name, cluster, size)
    monkeypatch.setattr(worlds, "folding", lambda *_: None)
    whole = predict(collective, name, cluster, size)
    assert folded.note == whole.note
    assert np.allclose(folded.rank_end_s, whole.rank_end_s, rtol=1e-9, atol=0)
    assert np.allclose(folded.link_bytes, whole.link_bytes)
    assert (folded.rounds, folded.transfers) == (whole.rounds, whole.transfers)
    assert folded.parts() == pytest.approx(whole.parts(), rel=1e-6) or folded.note


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("collective", "name"), ROUND_BY_ROUND)
def test_a_folded_world_takes_what_the_plain_simulator_says(
    spec: str, collective: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = parse(spec)
    size = 4096 * cluster.ranks
    monkeypatch.setattr(worlds, "EVENTS", 1 << 62)
    large = predict(collective, name, cluster, size)
    small = simulate(build(collective, name, cluster.ranks), cluster, size)
    assert large.note == "" or folding_saves_nothing(collective, name, spec)
    assert large.time_s == pytest.approx(small.time_s, rel=0.15 if large.note else 1e-9)
    assert np.allclose(large.link_bytes, small.link_bytes)
    if not large.note:
        assert np.allclose(large.rank_end_s, small.rank_end_s, rtol=1e-9, atol=0)
        assert sum(hop.end_s - hop.start_s for hop in large.hops) == pytest.approx(large.time_s, rel=1e-9)


def folding_saves_nothing(collective: str, name: str, spec: str) -> bool:
    parts = parts_of(collective, name, parse(spec).ranks, {}) or []
    return folding(parse(spec), [part.round for part in parts if isinstance(part, Same)]) is None


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("spec", ["dgx-h100:32", "torus:8x8x4", "fat-tree:8", "hosts:32x8", "ring:200", "ethernet:256"])
@pytest.mark.parametrize(
    ("collective", "name"), [("all_reduce", "ring"), ("all_gather", "bruck"), ("all_reduce", "hierarchical")]
)
def test_a_larger_folded_world_is_not_far_from_what_the_plain_simulator_says(
    spec: str, collective: str, name: str
) -> None:
    cluster = parse(spec)
    size = 4096 * cluster.ranks
    large = predict(collective, name, cluster, size)
    small = simulate(build(collective, name, cluster.ranks), cluster, size)
    assert large.time_s == pytest.approx(small.time_s, rel=0.15 if large.note else 1e-9)


@pytest.mark.parametrize("spec", SPECS)
def test_routes_move_with_the_ranks(spec: str) -> None:
    cluster = parse(spec)
    n = cluster.ranks
    src, dst = np.divmod(np.arange(n * n, dtype=np.int32), n)
    for times in (1, 2):
        period = cluster.period * times
        if n % period == 0:
            net = network(cluster, fold=fold(cluster, period))
            assert np.array_equal(net.routes(src, dst), net.routes((src + period) % n, (dst + period) % n))
            assert np.array_equal(
                np.append(cluster.bandwidth, np.inf)[cluster.routes(src, dst)], net.bandwidth[net.routes(src, dst)]
            )


def test_the_period_is_the_least_that_cluster_and_rounds_have_in_common() -> None:
    rank = np.arange(24, dtype=np.int32)
    ring = Round(src=rank, dst=(rank + 1) % 24)
    in_fours = Round(src=rank, dst=rank // 4 * 4 + (rank + 1) % 4)
    leaders = Round(src=rank[::6], dst=rank[::6] + 1)
    assert symmetry(parse("switch:24"), [ring]) == 1
    assert symmetry(parse("hosts:4x6"), [ring]) == 6
    assert symmetry(parse("switch:24"), [ring, in_fours]) == 4
    assert symmetry(parse("switch:24"), [in_fours, leaders]) == 12
    assert symmetry(parse("switch:24"), [Round(src=rank, dst=(rank + 1) % 24, count=1 + rank % 3)]) == 3
    assert symmetry(parse("switch:24"), [Round(src=rank, dst=rank * 5 % 24)]) == 6
    assert symmetry(parse("switch:24"), [Round(src=rank[:23], dst=rank[1:])]) == 24


def test_what_is_not_regular_is_not_folded() -> None:
    rank = np.arange(24, dtype=np.int32)
    ring = Round(src=rank, dst=(rank + 1) % 24)
    assert folding(parse("switch:24"), [ring]) is not None
    assert folding(parse("switch:24").with_slow("3-4", 0.5), [ring]) is None
    assert folding(parse("switch:24").first(23), [Round(src=rank[:23], dst=(rank[:23] + 1) % 23)]) is None
    order = np.random.default_rng(5).permutation(24).astype(np.int32)
    assert folding(parse("switch:24"), [Round(src=order, dst=np.roll(order, -1))]) is None


@pytest.mark.usefixtures("everything_is_large")
def test_a_late_rank_is_late_in_a_regular_world_too() -> None:
    cluster = parse("switch:32@1GB/s,2us")
    late = predict("all_reduce", "ring", cluster, 32 * 4096, settings=Settings(delays={3: 1e-3}))
    listed = simulate(build("all_reduce", "ring", 32), cluster, 32 * 4096, settings=Settings(delays={3: 1e-3}))
    assert late.rank_end_s == pytest.approx(listed.rank_end_s, rel=1e-9)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("spec", ["hosts:10x4", "torus:4x3x5", "fat-tree:6", "dgx-h100:6"])
@pytest.mark.parametrize("name", ["ring", "bidirectional_ring", "hierarchical:levels=2x30,across=ring"])
def test_the_critical_path_of_a_folded_world_is_one_of_real_ranks(spec: str, name: str) -> None:
    cluster = parse(spec)
    if name.startswith("hierarchical"):
        name = name.replace("30", str(cluster.ranks // 2))
    priced = replace(cluster, startup_s=1e-7, reduce_s_per_byte=1e-11)
    result = predict("all_reduce", name, priced, 4096 * cluster.ranks)
    if result.note:
        assert result.hops == ()
        return
    assert sum(hop.end_s - hop.start_s for hop in result.hops) == pytest.approx(result.time_s, rel=1e-9)
    for hop, following in zip(result.hops, result.hops[1:], strict=False):
        assert following.rank == (hop.peer if hop.kind == "message" else hop.rank)
    for hop in result.hops:
        if hop.kind in ("message", "send"):
            assert hop.link in {cluster.link_name(link) for link in cluster.route(hop.rank, hop.peer)}
    assert {hop.kind for hop in result.hops} & {"message", "send"}


def test_an_exchange_of_very_many_chunks_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rounds are few and told in short, but the list has a transfer for every chunk."""
    cluster = parse("switch:256@1GB/s,2us")
    listed = predict("all_to_all", "bruck", cluster, 4 * 256 * 256)
    monkeypatch.setattr(worlds, "LISTED", 256 * 8)  # as many as there are messages
    short = predict("all_to_all", "bruck", cluster, 4 * 256 * 256)
    assert (listed.rounds, short.rounds) == (8, 8)
    assert (listed.transfers, short.transfers) == (256 * 128 * 8, 256 * 8)
    assert short.time_s == pytest.approx(listed.time_s, rel=1e-9)
