from __future__ import annotations

from pathlib import Path

import pytest

from farandole.run.spawn import spawn

pytest.importorskip("torch", reason="the backend is for PyTorch, which is not installed")

RANKS = Path(__file__).with_name("sharing_ranks.py")


@pytest.mark.parametrize(("function", "size"), [("all_of", 2), ("some_of", 3)])
def test_what_ranks_read_in_place_has_the_bits_of_what_they_copy(function: str, size: int, tmp_path: Path) -> None:
    assert spawn(size, f"{RANKS}:{function}", {"path": str(tmp_path / "store")}, timeout_s=58) == [None] * size


def test_a_shared_tensor_on_one_rank_only_is_an_error_on_all(tmp_path: Path) -> None:
    for heard in spawn(2, f"{RANKS}:unlike", {"path": str(tmp_path / "store")}):
        assert "shared array 1 in place" in heard
