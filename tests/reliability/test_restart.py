"""A launcher that starts a job again when a rank has died gets a job that works."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RANKS_PY = Path(__file__).with_name("restart_ranks.py")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torchrun_starts_a_job_again_in_which_a_rank_was_killed(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    shared = {p.name for p in Path("/dev/shm").iterdir()}  # noqa: S108 - to see that nothing is left there
    done = subprocess.run(
        [*torchrun, "--monitor-interval=0.1", str(RANKS_PY), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )
    assert done.returncode == 0, done.stderr
    said = [[json.loads(line) for line in (tmp_path / f"rank {rank}").read_text().splitlines()] for rank in range(2)]
    survivor, victim = said
    assert [(line["attempt"], line["end"], line["steps"]) for line in victim] == [(0, "killed", 3), (1, "through", 6)]
    assert survivor[-1]["attempt"] == 1
    assert (survivor[-1]["end"], survivor[-1]["steps"]) == ("through", 6)
    for line in survivor[:-1]:  # torchrun may have ended it before it could say anything
        assert (line["attempt"], line["end"], line["steps"], line["lost"]) == (0, "lost a rank", 3, victim[0]["pid"])
    assert {p.name for p in Path("/dev/shm").iterdir() if "farandole" in p.name} <= shared  # noqa: S108
