from __future__ import annotations

from pathlib import Path

import pytest

from farandole.run.spawn import spawn

pytest.importorskip("torch", reason="the backend is for PyTorch, which is not installed")

RANKS = Path(__file__).with_name("view_ranks.py")


def test_conjugate_and_negative_tensors_are_read_and_written_as_what_they_say(tmp_path: Path) -> None:
    root, other = spawn(2, f"{RANKS}:views", {"path": str(tmp_path / "store")}, timeout_s=55)
    assert (root, other) == (6 * 15, 6 * 17)
