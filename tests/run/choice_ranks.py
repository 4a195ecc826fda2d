"""What the ranks do that have profiles of their own, or none; started by ``spawn`` with this file's path."""

from __future__ import annotations

import os

import numpy as np

import farandole
from farandole.errors import FarandoleError
from farandole.run.engine import DEFAULT_SLOT_BYTES
from farandole.run.environment import world


def _init(settings: list[str], slot_bytes: int = DEFAULT_SLOT_BYTES) -> farandole.Communicator:
    found = world(os.environ)
    assert found is not None
    return farandole.init(
        timeout_s=20, slot_bytes=slot_bytes, environ={**os.environ, "FARANDOLE_PROFILE": settings[found.rank]}
    )


def which(settings: list[str], slot_bytes: int = DEFAULT_SLOT_BYTES) -> list[str]:
    """What auto is for three calls; and for one among ranks 0 and 1 only."""
    with _init(settings, slot_bytes) as c:
        x = np.arange(1024, dtype=np.float32) + c.rank
        want = 3 * np.arange(1024) + 3
        found = []
        for _ in range(3):  # the second time, and the third, the plan is there
            out = c.all_reduce(x, out=np.empty_like(x))
            assert (out == want).all()
        found.append(c.last_algorithm)
        assert c.explain("all_reduce", x.nbytes).algorithm == c.last_algorithm
        c.background.all_gather(x).wait()
        found.append(c.last_algorithm)
        c.broadcast(x.copy())
        found.append(c.last_algorithm)
        part = c.split(0 if c.rank < 2 else None)
        if part is not None:
            with part:
                part.all_reduce(x)
                return [*found, part.last_algorithm]
        return [*found, ""]


def failure(settings: list[str]) -> list[str]:
    """The error with which it begins."""
    try:
        _init(settings)
    except FarandoleError as error:
        return [type(error).__name__, str(error)]
    return ["none", ""]
