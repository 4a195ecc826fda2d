"""What the ranks of test_aside.py do."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import farandole


def cores_after_one(tries: int, calls: int) -> tuple[list[int], bool]:
    """On which core this rank is after so many short calls since all were on one; whether it may still be on all."""
    allowed = os.sched_getaffinity(0)
    cores = []
    with farandole.init(timeout_s=40) as communicator:
        for _ in range(tries):
            os.sched_setaffinity(0, {min(allowed)})
            communicator.barrier()
            os.sched_setaffinity(0, allowed)
            for _ in range(calls):
                communicator.all_reduce(np.ones(2, np.float32))
            cores.append(_core())
    return cores, os.sched_getaffinity(0) == allowed


def _core() -> int:
    """The core that this process ran on last."""
    after_name = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(after_name[36])
