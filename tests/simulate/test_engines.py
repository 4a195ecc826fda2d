"""The two engines know nothing of each other, so where both can do the work they must agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.algorithms import REGISTRY, build
from farandole.cluster import parse
from farandole.schedule import Round, Schedule
from farandole.simulate import Overlap, Settings, Simulation, rounds, simulate
from farandole.simulate.fairness import max_min_rates
from farandole.simulate.sharing import drain_times

SPECS = ["switch:8", "ring:6", "hosts:2x4", "full:5", "torus:2x4", "pcie:6", "dgx-h100:1", "hosts:3x3", "fat-tree:4"]
SETTINGS = [Settings(), Settings(delays={1: 3e-5, 2: 1e-4}), Settings(jitter_s=1e-6, seed=3)]


def check(one: Simulation, other: Simulation) -> None:
    assert np.allclose(one.rank_end_s, other.rank_end_s, rtol=1e-9, atol=0)
    assert np.allclose(one.link_bytes, other.link_bytes)
    for result in (one, other):
        lengths = sum(hop.end_s - hop.start_s for hop in result.hops)
        assert lengths == pytest.approx(result.time_s, rel=1e-9)
        assert sum(result.parts().values()) == pytest.approx(result.time_s, rel=1e-9)
        for before, after in zip(result.hops, result.hops[1:], strict=False):
            assert before.end_s == pytest.approx(after.start_s, rel=1e-9, abs=1e-15)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_engines_agree_wherever_the_fast_one_is_exact(data: st.DataObject) -> None:
    cluster = parse(data.draw(st.sampled_from(SPECS))).with_costs(*data.draw(st.sampled_from([(0, 0), (1e-6, 1e-10)])))
    collective, name = data.draw(st.sampled_from(sorted(REGISTRY)))
    chosen = data.draw(st.sampled_from(SETTINGS))
    size = 4 * data.draw(st.integers(0, 200_000))
    schedule = build(collective, name, cluster.ranks)
    try:
        fast = simulate(schedule, cluster, size, settings=chosen, engine="rounds")
    except Overlap:
        return
    check(fast, simulate(schedule, cluster, size, settings=chosen, engine="events"))


def test_the_fast_engine_does_most_of_the_work() -> None:
    done = sum(simulate(build(*key, 8), parse("switch:8"), 64_000).engine == "rounds" for key in sorted(REGISTRY))
    assert done == len(REGISTRY)


def test_a_rank_that_reduces_from_very_many_takes_as_long_by_both_engines() -> None:
    cluster = parse("switch:100").with_costs(startup_s=2e-7, reduce_s_per_byte=3e-9)
    schedule = build("all_reduce", "parameter_server", 100)
    chosen = Settings(delays={rank: 1e-5 * (rank * 7 % 13) for rank in range(100)})
    fast = simulate(schedule, cluster, 40_000, settings=chosen, engine="rounds")
    check(fast, simulate(schedule, cluster, 40_000, settings=chosen, engine="events"))


@pytest.mark.parametrize("spec", ["switch:100", "ring:100", "hosts:10x10"])
def test_equal_rounds_that_are_noticed_early_take_what_they_take_one_by_one(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LARGE", 1)
    cluster = parse(spec).with_costs(startup_s=1e-6, reduce_s_per_byte=1e-10)
    schedule = build("all_reduce", "bidirectional_ring", 100)
    each = simulate(schedule, cluster, 400_000, trace=True)  # which goes through every round
    early = simulate(schedule, cluster, 400_000)
    assert early.rank_end_s == pytest.approx(each.rank_end_s, rel=1e-9)


def test_messages_of_different_rounds_on_one_link_share_it() -> None:
    """Worked by hand: rank 1 is idle in round 0 and so starts its 1 GB at once; rank 0's second starts at 1.5 s."""
    cluster = parse("switch:3@1GB/s,0us")
    schedule = Schedule("broadcast", 3, 1, (Round(src=0, dst=2), Round(src=1, dst=2)), name="by hand")
    result = simulate(schedule, cluster, 10**9)
    assert result.engine == "events"
    assert result.rank_end_s.tolist() == pytest.approx([2.0, 2.0, 2.0])
    with pytest.raises(Overlap):
        simulate(schedule, cluster, 10**9, engine="rounds")


def test_max_min_rates_are_those_worked_by_hand() -> None:
    """Links of 10, 4 and 10: flows over 0; 0 and 1; 1; 2. The second and third are held to 2, the first gets 8."""
    routes = np.array([[0, 3], [0, 1], [1, 3], [2, 3]], np.int32)
    capacity = np.array([10.0, 4.0, 10.0, np.inf])
    assert max_min_rates(routes, capacity, np.full(4, np.inf)).tolist() == [8.0, 2.0, 2.0, 10.0]
    assert max_min_rates(routes, capacity, np.array([1.0, 9, 9, 3])).tolist() == [1.0, 2.0, 2.0, 3.0]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rates_are_feasible_and_every_flow_has_a_bottleneck(data: st.DataObject) -> None:
    links, flows = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 12))
    capacity = np.append(data.draw(st.lists(st.integers(1, 9), min_size=links, max_size=links)), np.inf).astype(float)
    routes = np.array(
        [(sorted(data.draw(st.sets(st.integers(0, links - 1), max_size=3))) + [links] * 3)[:3] for _ in range(flows)],
        np.int32,
    )
    limit = np.array(data.draw(st.lists(st.integers(1, 9), min_size=flows, max_size=flows)), float)
    rates = max_min_rates(routes, capacity, limit)
    used = np.array([rates[(routes == link).any(axis=1)].sum() for link in range(links)])
    assert (used <= capacity[:-1] * (1 + 1e-9)).all()
    for flow in range(flows):
        if rates[flow] < limit[flow] * (1 - 1e-9):
            mine = [link for link in routes[flow].tolist() if link < links]
            tight = [link for link in mine if used[link] >= capacity[link] * (1 - 1e-9)]
            assert any(rates[(routes == link).any(axis=1)].max() <= rates[flow] * (1 + 1e-9) for link in tight)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), min_size=2, max_size=9))
def test_turns_on_one_link_are_what_the_general_way_gives(flows: list[tuple[int, int]]) -> None:
    posted, size = (np.array(column, float) for column in zip(*flows, strict=True))
    capacity, limit = np.array([4.0, np.inf]), np.full(len(flows), np.inf)
    short = drain_times(posted, size, np.zeros((len(flows), 1), np.int32), capacity, limit)
    two_links = np.append(capacity, 8.0)[[0, 2, 1]]  # a second link that never binds takes the general way
    pairs = np.tile(np.array([[0, 1]], np.int32), (len(flows), 1))
    assert short == pytest.approx(drain_times(posted, size, pairs, two_links, limit), rel=1e-9)


def test_slices_of_a_tree_pipeline() -> None:
    schedule, cluster = build("broadcast", "binomial", 16), parse("full:16@1GB/s,1us")
    times = [simulate(schedule, cluster, 2**24, settings=Settings(slices=s)).time_s for s in (1, 4, 16)]
    assert times[0] > 1.5 * times[1] > 1.9 * times[2]
    alone = simulate(schedule, cluster, 2**24, settings=Settings(slices=4, in_flight=1)).time_s
    assert alone > times[1]


def test_slices_leave_the_bytes_of_every_link_as_they_are() -> None:
    schedule, cluster = build("all_reduce", "ring", 4), parse("hosts:2x2")
    whole = simulate(schedule, cluster, 4096)
    sliced = simulate(schedule, cluster, 4096, settings=Settings(slices=3), trace=True)
    assert sliced.link_bytes == pytest.approx(whole.link_bytes, rel=0.01)  # slices are cut at whole cache lines
    assert sliced.link_bytes.sum() == pytest.approx(whole.link_bytes.sum())
    assert sliced.trace is not None
    assert len(sliced.trace) == 3 * (2 * 24 + 12)


@pytest.mark.parametrize("name", ["recursive_doubling", "tree", "halving_doubling", "naive", "ring"])
def test_the_engines_agree_on_messages_that_wait_for_their_receivers(name: str) -> None:
    cluster = parse("switch:6").with_slow("4-5", 0.5).with_costs(1e-6, 1e-10)
    settings = Settings(delays={2: 3e-4}, rendezvous=True)
    times = []
    for engine in ("rounds", "events"):
        try:
            times.append(
                simulate(build("all_reduce", name, 6), cluster, 6 * 2**20, settings=settings, engine=engine).time_s
            )
        except Overlap:
            assert engine == "rounds"
    assert times[0] == pytest.approx(times[-1], rel=1e-9)


def test_a_message_that_waits_for_its_receiver_takes_nothing_from_others() -> None:
    """Two fast ranks are done early; what they send next would share the slow ones' links, but waits."""
    cluster, size = parse("switch:4@1GB/s,0us").with_slow("2-3", 0.5), 4_000_000
    schedule = build("all_reduce", "recursive_doubling", 4)
    waits = simulate(schedule, cluster, size, settings=Settings(rendezvous=True)).time_s
    assert waits == pytest.approx(2 * size / 0.5e9)
    assert simulate(schedule, cluster, size).time_s == pytest.approx(2.5 * size / 0.5e9)
