"""The PyTorch examples learn, on Gloo and on farandole alike, and as one rank on its own would.

All of them train in one job under torchrun: starting PyTorch takes longer than these trainings.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the examples are for PyTorch, which is not installed")
pytest.importorskip("sklearn", reason="the pictures come with scikit-learn, which is not installed")

RANKS = Path(__file__).with_name("pytorch_ranks.py")
EXAMPLES = Path(__file__).parents[2] / "examples/pytorch"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "digits")
LIMIT_S = 200  # starting takes long where much else runs
pytestmark = pytest.mark.timeout(LIMIT_S + 10)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each example reported; those after one that failed are missing, and ``log`` says why."""
    folder = tmp_path_factory.mktemp("examples")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, str(RANKS), str(folder / "results"), *NAMES]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as job:
        try:
            job.wait(LIMIT_S)
        finally:
            job.terminate()  # and not killed: it must take its ranks with it
    found: dict[str, Any] = {"log": (folder / "log").read_text()}
    if (folder / "results").exists():
        found |= json.loads((folder / "results").read_text())
    return found


def losses(epochs: list[dict[str, float]]) -> list[float]:
    return [epoch["loss"] for epoch in epochs]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_learns_and_has_the_losses_of_gloo_and_of_one_rank_alone(name: str, results: dict[str, Any]) -> None:
    assert name in results, results["log"]
    found = results[name]
    ours = found["farandole 2"]
    assert losses(ours) == pytest.approx(losses(found["gloo 2"]), rel=1e-5)
    if "gloo 1" in found:
        assert losses(ours) == pytest.approx(losses(found["gloo 1"]), rel=1e-3)
    assert ours[-1]["loss"] < 0.95 * ours[0]["loss"]
    assert ours[-1]["accuracy"] > 0.3  # by luck it would be 0.1
    assert ours[-1]["accuracy"] == pytest.approx(found["gloo 2"][-1]["accuracy"], abs=0.005)


def test_batch_normalization_over_all_ranks_is_that_of_one_large_batch(results: dict[str, Any]) -> None:
    assert "normalized" in results, results["log"]
    assert results["normalized"] == pytest.approx(dict.fromkeys(results["normalized"], 0.0), abs=1e-5)


def test_an_example_runs_as_a_script_under_our_launcher() -> None:
    command = [sys.executable, "-m", "farandole", "launch", "-n", "2", str(EXAMPLES / "ddp.py"), "--epochs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 1", "epoch 2"]
    assert all("accuracy" in line and "ms per step" in line for line in lines)
