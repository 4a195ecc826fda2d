from __future__ import annotations

import pytest

from farandole.run.failures import MISMATCH, State, failure_error


@pytest.mark.parametrize(
    ("ranks", "others"), [(4, "ranks 0, 1, 3 are at #7 barrier"), (256, "ranks 0, 1 and 3-255 are at #7 barrier")]
)
def test_where_the_ranks_are_stays_readable_however_many_they_are(ranks: int, others: str) -> None:
    states: list[State] = [(7, 0, "barrier")] * ranks
    states[2] = (6, 1, "all_gather(int8[3])")
    error = failure_error(MISMATCH, rank=1, peer=2, first=1, pids=range(ranks), states=states, timeout_s=1.0)
    assert others in str(error)
    assert "rank 2 is at #6 all_gather(int8[3]), and closed" in str(error)
    assert len(str(error)) < 400
