from __future__ import annotations

import pytest

from farandole.bench.load import Reading, busy, others_share, reading

STAT = """cpu  30 0 30 500 0 0 0 0 0 0
cpu0 10 1 5 100 70 1 2 3 4 0
cpu1 20 0 5 200 0 0 0 0 0 0
cpu10 1000 0 0 0 0 0 0 0 0 0
intr 7
"""


def test_ticks_of_ones_own_cores_count_but_not_those_that_they_were_idle_or_waiting() -> None:
    assert busy(STAT, {0}) == 10 + 1 + 5 + 1 + 2 + 3
    assert busy(STAT, {0, 1}) == 22 + 25
    assert busy(STAT, {1, 10}) == 25 + 1000
    assert busy("", {0}) == 0


@pytest.mark.parametrize(
    ("busy_s", "own_s", "share"),
    [
        (12.0, 12.0, 0.0),  # all of it was ours
        (12.0, 2.0, 0.5),
        (12.0, 13.0, 0.0),  # ticks are coarse
        (50.0, 0.0, 1.0),
        (None, 0.0, 0.0),
    ],
)
def test_what_is_not_ours_is_the_others(busy_s: float | None, own_s: float, share: float) -> None:
    before = Reading(at_s=100.0, busy_s=7.0, own_s=1.0, cores=2)
    after = Reading(at_s=110.0, busy_s=None if busy_s is None else 7.0 + busy_s, own_s=1.0 + own_s, cores=2)
    assert others_share(before, after) == share
    assert others_share(before, before) == 0.0


def test_a_reading_of_this_machine_has_all_counters() -> None:
    first, second = reading(), reading()
    assert first.cores >= 1
    assert first.busy_s is not None
    assert second.busy_s is not None
    assert 0 < first.busy_s <= second.busy_s
    assert 0 < first.own_s <= second.own_s
    assert 0 <= others_share(first, second) <= 1
