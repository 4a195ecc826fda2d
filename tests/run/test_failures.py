from __future__ import annotations

import pytest

from farandole.run.failures import INTERRUPTED, MISMATCH, State, failure_error


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


def test_a_rank_whose_first_call_finds_the_communicator_broken_says_so() -> None:
    states: list[State] = [(0, 0, ""), (1, 0, "barrier")]
    error = failure_error(INTERRUPTED, rank=0, peer=1, first=1, pids=[7, 8], states=states, timeout_s=1.0)
    assert str(error).startswith("rank 0, its first call (rank 1 noticed it first): rank 1 was interrupted")
