from __future__ import annotations

import numpy as np
import pytest

from farandole.cluster import PRESETS, parse
from farandole.errors import UnknownNameError, UsageError

SPECS = [
    "ring:1", "ring:2", "ring:9@50GB/s,3us", "switch:7@100Gbit/s,2us", "full:5", "hosts:3x4",
    "hosts:2x4@300GB/s@25GB/s,9us",
    "torus:2x3", "torus:2x3x4", "torus:5", "fat-tree:2", "fat-tree:6", "ethernet:4@25Gbit/s", "pcie:8", "dgx-a100:2",
    "dgx-h100:3",
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
def test_a_route_is_a_chain_of_links_from_the_senders_node_to_the_receivers(spec: str) -> None:
    cluster = parse(spec)
    for src in range(cluster.ranks):
        for dst in range(cluster.ranks):
            at = cluster.rank_node[src]
            for link in cluster.route(src, dst):
                assert cluster.link_src[link] == at
                at = cluster.link_dst[link]
            assert at == cluster.rank_node[dst]


@pytest.mark.parametrize("spec", SPECS)
def test_many_routes_at_once_are_the_same_as_one_by_one(spec: str) -> None:
    cluster = parse(spec)
    n = cluster.ranks
    src, dst = np.divmod(np.arange(n * n), n)
    table = cluster.routes(src, dst)
    for s, d, row in zip(src.tolist(), dst.tolist(), table.tolist(), strict=True):
        assert [link for link in row if link >= 0] == cluster.route(s, d)
        assert row == sorted(row, key=lambda link: link < 0)


@pytest.mark.parametrize("spec", SPECS)
def test_what_is_said_to_look_alike_does(spec: str) -> None:
    cluster = parse(spec)
    n = cluster.ranks

    def shape(src: int, dst: int) -> list[int]:
        return [int(cluster.link_kind[link]) for link in cluster.route(src, dst)]

    views = [sorted(shape(r, other) for other in range(n)) for r in range(n)]
    if cluster.alike and not spec.startswith(("torus", "ring")):
        assert all(view == views[0] for view in views)
    if cluster.alike:
        assert all(sorted(map(len, view)) == sorted(map(len, views[0])) for view in views)
    if cluster.period:
        for src in range(n):
            for dst in range(n):
                moved = shape((src + cluster.period) % n, (dst + cluster.period) % n)
                assert moved == shape(src, dst)
    for kind in range(int(cluster.link_kind.max(initial=0)) + 1):
        assert len(set(cluster.bandwidth[cluster.link_kind == kind].tolist())) <= 1


def test_every_preset_is_among_the_specs_above() -> None:
    assert {spec.partition(":")[0] for spec in SPECS} == set(PRESETS)


def test_a_path_between_hosts_has_the_latency_inside_and_that_outside() -> None:
    cluster = parse("hosts:2x2@300GB/s,1us@25GB/s,5us")
    assert cluster.latency_s[cluster.route(0, 1)].sum() == pytest.approx(1e-6)
    assert cluster.latency_s[cluster.route(0, 3)].sum() == pytest.approx(6e-6)
    assert cluster.bandwidth[cluster.route(0, 3)].min() == 25e9


def test_gpus_of_different_places_meet_on_the_rail_of_the_receiver() -> None:
    cluster = parse("dgx-h100:2")
    names = [cluster.link_name(link) for link in cluster.route(1, 8 + 5)]
    assert names == ["h0.gpu1->h0.nvswitch", "h0.nvswitch->h0.gpu5", "h0.gpu5->rail5", "rail5->h1.gpu5"]
    assert [cluster.link_name(link) for link in cluster.route(3, 11)] == ["h0.gpu3->rail3", "rail3->h1.gpu3"]


def test_a_fat_tree_gives_every_shift_links_of_its_own() -> None:
    cluster = parse("fat-tree:6")
    rank = np.arange(cluster.ranks)
    for distance in range(1, cluster.ranks):
        table = cluster.routes(rank, (rank + distance) % cluster.ranks)
        used = table[table >= 0]
        assert np.bincount(used).max() == 1


def test_slow_links_are_those_between_two_ranks_both_ways() -> None:
    slowed = parse("ring:8@50GB/s").with_slow("3-4", 0.25)
    slow = [slowed.link_name(int(i)) for i in np.flatnonzero(slowed.bandwidth < 50e9)]
    assert sorted(slow) == ["d3->d4", "d4->d3"]
    assert slowed.bandwidth.min() == 12.5e9
    assert not slowed.alike
    assert parse("ring:8@50GB/s").with_slow("d7->d0", 0.5).bandwidth.tolist().count(25e9) == 1


def test_the_first_ranks_of_a_cluster_keep_their_routes() -> None:
    whole = parse("hosts:2x4")
    part = whole.first(6)
    assert part.ranks == 6
    assert part.route(1, 5) == whole.route(1, 5)
    with pytest.raises(UsageError, match="has 8 ranks, not 9"):
        whole.first(9)


@pytest.mark.parametrize(
    "spec",
    ["ring", "ring:", "ring:0", "ring:4x4", "hosts:4", "switch:4@1GB/s@1GB/s", "fat-tree:3", "pcie:3", "full:99999"],
)
def test_a_spec_that_cannot_be_is_refused(spec: str) -> None:
    with pytest.raises(UsageError):
        parse(spec)


def test_an_unknown_kind_is_told_what_is_near() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'torus'"):
        parse("torsu:4x4")


@pytest.mark.parametrize("text", ["3-3", "0-99", "d0->d5", "nonsense"])
def test_a_slow_link_must_exist(text: str) -> None:
    with pytest.raises(UsageError):
        parse("ring:8").with_slow(text, 0.5)


def test_the_first_links_of_a_large_cluster_are_named_without_naming_them_all() -> None:
    cluster = parse("switch:1000000")
    assert cluster.link_name(1_000_001) == "switch->d1"
    assert cluster.ranks == 1_000_000
