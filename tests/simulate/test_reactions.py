"""A prediction must react to what it is told, and say why it came out as it did."""

from __future__ import annotations

import pytest

from farandole.algorithms import build
from farandole.cluster import parse
from farandole.errors import LengthError, UsageError
from farandole.simulate import Settings, predict, simulate

MIB = 2**20


def time_s(algorithm: str, spec: str, size: int = 64 * MIB, collective: str = "all_reduce") -> float:
    return predict(collective, algorithm, parse(spec), size).time_s


def test_half_the_bandwidth_takes_twice_as_long() -> None:
    assert time_s("ring", "ring:8@25GB/s,0us") == pytest.approx(2 * time_s("ring", "ring:8@50GB/s,0us"))


def test_an_all_gather_takes_half_of_an_all_reduce() -> None:
    gather = time_s("ring", "ring:8@50GB/s", collective="all_gather")
    assert time_s("ring", "ring:8@50GB/s") == pytest.approx(2 * gather)


def test_one_slow_link_bounds_the_ring_and_is_named() -> None:
    fast, slow = parse("ring:8@50GB/s"), parse("ring:8@50GB/s").with_slow("3-4", 0.25)
    result = predict("all_reduce", "ring", slow, 64 * MIB)
    assert result.time_s > 3.5 * predict("all_reduce", "ring", fast, 64 * MIB).time_s
    assert result.bottleneck == "d3->d4"
    assert any("rank 3 waits for the way to rank 4 over d3->d4" in sentence for sentence in result.critical_path())


def test_a_ring_that_goes_back_and_forth_between_hosts_is_slower() -> None:
    good, bad = "0,1,2,3,4,5,6,7", "0,4,1,5,2,6,3,7"
    assert time_s(f"ring:order={bad}", "hosts:2x4") > 3 * time_s(f"ring:order={good}", "hosts:2x4")


def test_few_rounds_win_small_sizes_and_little_traffic_large_ones() -> None:
    spec = "switch:64@100Gbit/s,10us"
    assert time_s("tree", spec, 1024) < time_s("ring", spec, 1024)
    assert time_s("ring", spec, 256 * MIB) < time_s("tree", spec, 256 * MIB)


def test_a_hierarchy_wins_where_inside_is_faster_than_between() -> None:
    hierarchy = "hierarchical:levels=8x4"
    assert time_s(hierarchy, "hosts:4x8@300GB/s@12GB/s") < 0.85 * time_s("ring", "hosts:4x8@300GB/s@12GB/s")


def test_a_late_rank_holds_everyone_up_and_is_named() -> None:
    cluster = parse("switch:8")
    usual = predict("all_reduce", "ring", cluster, MIB)
    late = predict("all_reduce", "ring", cluster, MIB, settings=Settings(delays={3: 5e-3}))
    assert late.time_s > usual.time_s + 4.9e-3
    assert late.critical_path()[0] == "rank 3 begins 5.00 ms late"


def test_jitter_is_the_same_for_the_same_seed_only() -> None:
    schedule, cluster = build("all_reduce", "ring", 8), parse("switch:8")

    def run(seed: int) -> float:
        return simulate(schedule, cluster, MIB, settings=Settings(jitter_s=1e-5, seed=seed)).time_s

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert run(1) > simulate(schedule, cluster, MIB).time_s


def test_two_flows_through_one_door_take_turns() -> None:
    """Two ranks of one host send to two of another: the hosts' link is shared, so twice the time of one."""
    cluster = parse("hosts:2x2@100GB/s,0us@1GB/s,0us")
    assert time_s("hierarchical:levels=2x2", "hosts:2x2@100GB/s,0us@1GB/s,0us", 4 * MIB) > 4 * MIB / 1e9
    result = simulate(build("all_reduce", "hierarchical", 4), cluster, 4 * MIB)
    assert result.bottleneck in ("h0.switch->network", "network->h1.switch", "h1.switch->network", "network->h0.switch")
    assert max(load.utilisation for load in result.busiest()) > 0.9


def test_a_trace_is_whole_and_in_order() -> None:
    result = simulate(build("all_reduce", "ring", 4), parse("switch:4").with_costs(1e-6, 1e-10), 4096, trace=True)
    trace = result.trace
    assert trace is not None
    assert trace.source == "simulated"
    assert trace.time_ns == pytest.approx(result.time_s * 1e9, abs=1)
    events = list(trace.events())
    assert [event.kind for event in events].count("send") == result.transfers == 24
    assert [event.kind for event in events].count("reduce") == 12
    assert [event.start_ns for event in events] == sorted(event.start_ns for event in events)
    sent = {(e.rank, e.peer, e.round, e.chunk): e.start_ns for e in events if e.kind == "send"}
    received = {(e.peer, e.rank, e.round, e.chunk): e.start_ns for e in events if e.kind == "receive"}
    assert sent == received


def test_both_engines_write_the_same_trace() -> None:
    schedule, cluster = build("all_gather", "bruck", 6), parse("switch:6").with_costs(1e-6, 1e-10)
    traces = [simulate(schedule, cluster, 6000, trace=True, engine=engine).trace for engine in ("rounds", "events")]
    assert traces[0] is not None
    assert traces[1] is not None
    for one, other in zip(traces[0].events(), traces[1].events(), strict=True):
        assert (one.rank, one.kind, one.round, one.peer, one.chunk) == (
            other.rank, other.kind, other.round, other.peer, other.chunk,
        )  # fmt: skip
        assert abs(one.start_ns - other.start_ns) <= 1
        assert abs(one.end_ns - other.end_ns) <= 1


def test_what_cannot_be_is_refused() -> None:
    schedule, cluster = build("all_reduce", "ring", 4), parse("switch:4")
    with pytest.raises(LengthError, match="not a whole number of elements"):
        simulate(schedule, cluster, 1001)
    with pytest.raises(UsageError, match="is for 4 ranks, but switch:3 has 3"):
        simulate(schedule, parse("switch:3"), 1000)
    with pytest.raises(UsageError, match="rank 9 cannot be late"):
        simulate(schedule, cluster, 1000, settings=Settings(delays={9: 1.0}))
    with pytest.raises(UsageError, match="at least 1"):
        simulate(schedule, cluster, 1000, settings=Settings(slices=0))
