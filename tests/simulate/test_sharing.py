"""Groups of flows that share nothing have clocks of their own, and end when they do on one clock for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.simulate.fairness import Floats, Routes, max_min_rates
from farandole.simulate.sharing import TooMuch, drain_times, sharing

LINKS = 8
NONE = LINKS


def on_one_clock(posted: Floats, size: Floats, routes: Routes, capacity: Floats, limit: Floats) -> Floats:
    """The fluid model in its plainest form: from event to event, all flows under way at once."""
    through, left, now = posted.copy(), size.astype(np.float64), 0.0
    done = np.zeros(len(posted), np.bool_)
    while not done.all():
        active = np.flatnonzero((posted <= now) & ~done)
        later = posted[(posted > now) & ~done].min(initial=np.inf)
        if not len(active):
            now = later
            continue
        rates = max_min_rates(routes[active], capacity, limit[active])
        until = min(float((now + left[active] / rates).min()), later)
        left[active] -= rates * (until - now)
        over = active[left[active] <= 1e-9 * size[active]]
        through[over], done[over], now = until, True, until
    return through


@settings(max_examples=200, deadline=None)
@given(
    flows=st.lists(
        st.tuples(
            st.integers(0, 12),
            st.integers(1, 30),
            st.lists(st.integers(0, LINKS - 1), min_size=1, max_size=3),
            st.sampled_from([1.0, 2.5, np.inf]),
        ),
        min_size=1,
        max_size=12,
    ),
    capacity=st.lists(st.sampled_from([1.0, 2.0, 3.5, np.inf]), min_size=LINKS, max_size=LINKS),
)
def test_every_group_ends_as_on_one_clock_for_all(
    flows: list[tuple[int, int, list[int], float]], capacity: list[float]
) -> None:
    posted, size, limit = (np.array([flow[i] for flow in flows], np.float64) for i in (0, 1, 3))
    routes = np.array([flow[2] + [NONE] * (3 - len(flow[2])) for flow in flows], np.int32)
    given_ = np.array([*capacity, np.inf])
    limit = np.minimum(limit, np.where(given_ < np.inf, given_, 4.0)[routes].min(axis=1, initial=4.0))
    expected = on_one_clock(posted, size, routes, given_, limit)
    assert drain_times(posted, size, routes, given_, limit) == pytest.approx(expected, rel=1e-7)


def test_flows_are_of_one_group_if_a_chain_of_links_leads_from_one_to_the_other() -> None:
    routes = np.array([[0, 1], [1, 2], [2, 3], [5, 8], [5, 6], [7, 8]], np.int32)
    found = sharing(routes, np.append(np.ones(8), np.inf), np.ones(6))
    assert found.rows.tolist() == [0, 1, 2, 3, 4]  # the last shares its link with nobody
    assert found.group.tolist() == [0, 0, 0, 1, 1]


def test_links_that_the_same_flows_cross_are_one_with_the_least_of_their_capacities() -> None:
    routes = np.array([[0, 1, 2], [1, 0, 2], [2, 3, 3]], np.int32)
    found = sharing(routes, np.array([5.0, 4.0, 9.0, 2.0, np.inf]), np.full(3, 5.0))
    assert found.routes.tolist() == [[0, 2, 4], [0, 2, 4], [2, 3, 3]]  # 4 is 'no link'
    assert found.capacity.tolist() == [4.0, 4.0, 9.0, 2.0, np.inf]
    assert found.rates() == pytest.approx([2.0, 2.0, 1.0])  # of 4 shared by two, and of 2 that one flow crosses twice


def test_flows_that_never_meet_on_a_link_run_as_if_alone() -> None:
    posted, size = np.array([0.0, 2.0, 4.0]), np.array([2.0, 2.0, 2.0])
    routes = np.zeros((3, 1), np.int32)
    capacity, limit = np.array([10.0, np.inf]), np.ones(3)
    assert drain_times(posted, size, routes, capacity, limit, most=0).tolist() == [2.0, 4.0, 6.0]
    with pytest.raises(TooMuch):
        drain_times(posted, size * 3, np.zeros((3, 1), np.int32), np.array([1.5, np.inf]), limit, most=0)
