"""Communicators and groups, made and closed over and over, leave nothing behind in their processes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from farandole.run.spawn import spawn

RANKS_PY = str(Path(__file__).with_name("leak_ranks.py"))
COUNT = 45
MOST_KIB_PER_CYCLE = 4  # a segment is 500 times that


@pytest.mark.parametrize(("kind", "ranks"), [("communicators", 2), ("groups", 3), ("failures", 2), ("torch_groups", 2)])
def test_what_ranks_hold_stays_the_same_from_cycle_to_cycle(kind: str, ranks: int, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"count": COUNT if kind != "torch_groups" else COUNT // 3}
    if kind == "torch_groups":
        if importlib.util.find_spec("torch") is None:
            pytest.skip("PyTorch is not installed")
        arguments["path"] = str(tmp_path / "store")
    for samples in spawn(ranks, f"{RANKS_PY}:{kind}", arguments, timeout_s=50):
        first, last = samples[0], samples[-1]
        assert {name: last[name] for name in ("descriptors", "threads", "mappings")} == {
            name: first[name] for name in ("descriptors", "threads", "mappings")
        }
        assert last["memory_kib"] - first["memory_kib"] < COUNT * MOST_KIB_PER_CYCLE
