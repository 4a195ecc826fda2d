"""Real bytes between emulated hosts come out in the order that the simulation says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "netns" / "compare.py"
SIZE, SLOW = 240_000, 25e6 / 8


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """A slow host, which is the server where there is one, and two that are four times as fast."""
    pytest.importorskip("torch", reason="the ranks talk by torch.distributed")
    missing = [tool for tool in ("ip", "tc", "unshare", "nsenter") if shutil.which(tool) is None]
    if os.name != "posix" or os.geteuid() != 0 or missing:
        pytest.skip(f"emulating hosts needs root and {', '.join(missing) or 'network namespaces'}")
    path = tmp_path_factory.mktemp("rig") / "results.json"
    command = [
        sys.executable, str(SCRIPT), "--rates", "25Mbit/s,100Mbit/s*2", "--sizes", str(SIZE), "--repeats", "1",
        "--collectives", "all_reduce", "--algorithms", "ring,naive,parameter_server", "--json", str(path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=55, check=False)
    if "cannot be" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert path.exists(), done.stderr
    return {result["algorithm"]: result for result in json.loads(path.read_text())["results"]}


def test_no_algorithm_is_faster_than_the_slow_link_lets_it_be(results: dict[str, dict[str, Any]]) -> None:
    through_the_link = {"ring": 4 / 3, "naive": 2, "parameter_server": 4}  # of the buffer, one way after another
    for algorithm, share in through_the_link.items():
        bound = share * SIZE / SLOW
        assert results[algorithm]["measured_s"] > 0.85 * bound
        assert results[algorithm]["predicted_s"] > 0.75 * bound  # so small a ping-pong gets a part of it for free


def test_the_order_of_the_algorithms_is_the_one_predicted(results: dict[str, dict[str, Any]]) -> None:
    order = {what: sorted(results, key=lambda name: results[name][what]) for what in ("measured_s", "predicted_s")}
    assert order["measured_s"] == order["predicted_s"] == ["ring", "naive", "parameter_server"]
