from __future__ import annotations

from pathlib import Path

import pytest

from farandole.run.spawn import spawn, spawn_all

pytest.importorskip("torch", reason="the backend is for PyTorch, which is not installed")

RANKS = Path(__file__).with_name("group_ranks.py")


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, str]:
    return {"path": str(tmp_path / "store")}


@pytest.mark.parametrize(("function", "size"), [("parts", 3), ("meshes", 4)])
def test_groups_of_some_of_the_ranks_work_and_leave_nothing_behind(
    function: str, size: int, arguments: dict[str, str]
) -> None:
    assert spawn(size, f"{RANKS}:{function}", arguments, timeout_s=55) == [None] * size


def test_a_world_can_be_made_again_and_a_destroyed_one_says_so(arguments: dict[str, str]) -> None:
    for heard in spawn(2, f"{RANKS}:again", arguments, timeout_s=55):
        assert heard == [f"all_reduce: the process group {name} is destroyed" for name in ("0", "0")]


def test_nobody_waits_for_a_dead_rank_in_order_to_make_a_group(arguments: dict[str, str]) -> None:
    for outcome in spawn_all(3, f"{RANKS}:dead", arguments)[:2]:
        new, split = outcome.result
        assert "new_group 1: rank 2 (pid" in new
        assert "split_group 0:split:0-1-2: rank 2 (pid" in split


def test_nobody_waits_for_a_rank_that_has_left_after_an_error_in_order_to_make_a_group(
    arguments: dict[str, str],
) -> None:
    for heard in spawn(3, f"{RANKS}:left_after_an_error", arguments)[:2]:
        assert "new_group 1" in heard
        assert "rank 2 has closed the communicator" in heard
