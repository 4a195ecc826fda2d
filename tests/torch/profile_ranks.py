"""What the ranks of a group do that have profiles of their own; started by ``spawn`` with this file's path."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

import farandole.torch
from farandole.run.environment import world
from torch_worlds import group


def auto(path: str, profiles: list[str]) -> list[str]:
    """What is run for two calls that ask for nothing."""
    found = world(os.environ)
    assert found is not None
    os.environ["FARANDOLE_PROFILE"] = profiles[found.rank]
    with group(path) as (rank, size):
        values = torch.arange(1024) + rank
        dist.all_reduce(values)
        assert torch.equal(values, size * torch.arange(1024) + 1)
        first = farandole.torch.last_algorithm()
        dist.broadcast(values, 0)
        return [first, farandole.torch.last_algorithm()]
