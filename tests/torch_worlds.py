"""Worlds of PyTorch's ranks, for tests that have their ranks in processes of their own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import farandole.torch  # noqa: F401 - which makes the backend known


@contextlib.contextmanager
def group(path: str, timeout_s: float = 30, backend: str = "farandole", **options: Any) -> Iterator[tuple[int, int]]:
    """The default process group, made through a file store; (rank, world size)."""
    rank, size = int(os.environ["FARANDOLE_RANK"]), int(os.environ["FARANDOLE_WORLD_SIZE"])
    limit = timedelta(seconds=timeout_s)
    store = dist.FileStore(path, size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit, **options)
    try:
        yield rank, size
    finally:
        dist.destroy_process_group()


def equal(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """The same bits."""
    assert got.dtype == wanted.dtype
    assert torch.equal(got.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8)), (got, wanted)


def in_turn(path: str, functions: Sequence[Callable[[str], object]]) -> None:
    """Several functions of a rank in one process, each with a store of its own: to import torch takes the longest."""
    for function in functions:
        function(f"{path}-{getattr(function, '__name__', '')}")
