"""What the ranks of test_distances.py do."""

from __future__ import annotations

import os

import numpy as np

import farandole
from farandole.run.environment import RANK
from farandole.run.start import CACHES


def distances(calls: int, size_bytes: int) -> list[int]:
    """How far away the ranks are for this one after so many calls."""
    with farandole.init(timeout_s=40) as communicator:
        for _ in range(calls):
            communicator.all_reduce(np.ones(size_bytes, np.uint8), algorithm="direct")
        return communicator.distances_ns()


def broadcasts(calls: int, size_bytes: int, said: list[str]) -> tuple[bool, bool]:
    """Whether this rank knows how far away others are, and writes past the caches, after broadcasts from rank 0.

    ``said`` is what the environment of each rank says of the caches, empty for nothing.
    """
    environ = {**os.environ, CACHES: said[int(os.environ[RANK])]}
    with farandole.init(timeout_s=40, environ=environ) as communicator:
        for _ in range(calls):
            communicator.broadcast(np.ones(size_bytes, np.uint8))
        communicator.barrier()
        engine = communicator._executor.engine
        assert engine is not None
        return any(communicator.distances_ns()), engine.writes_past_caches
