"""Two ranks that are on one core although another is free do not stay there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from farandole.run.spawn import spawn

RANKS_PY = str(Path(__file__).with_name("aside_ranks.py"))
TRIES, CALLS = 60, 100  # left to the kernel, some 500 calls go by before it moves one


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_rank_steps_aside_and_may_go_back() -> None:
    (first, first_may), (second, second_may) = spawn(
        2, f"{RANKS_PY}:cores_after_one", {"tries": TRIES, "calls": CALLS}, timeout_s=50
    )
    apart = sum(one != other for one, other in zip(first, second, strict=True))
    assert apart >= TRIES // 10  # not where other programs keep all cores busy just then
    assert first_may
    assert second_may
