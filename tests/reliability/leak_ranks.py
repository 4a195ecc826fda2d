"""Ranks that make and close communicators over and over, and count what they hold."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import farandole

Held = dict[str, int]
SLOT_BYTES = 64 << 10
SAMPLES = 10


def held() -> Held:
    """This process's descriptors, threads, mappings and resident memory in KiB."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what has been given back is not held
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "threads": int(status["Threads"]),
        "mappings": sum(1 for line in Path("/proc/self/maps").open() if "farandole" in line and "memfd" in line),
        "memory_kib": int(status["VmRSS"].split()[0]),
    }


def _sampled(count: int, cycle: Callable[[int], None]) -> list[Held]:
    """What is held after a few cycles that warm everything up, and then ``SAMPLES`` times until ``count``."""
    for k in range(min(20, count)):
        cycle(k)
    samples = [held()]
    for sample in range(SAMPLES):
        for k in range(count * sample // SAMPLES, count * (sample + 1) // SAMPLES):
            cycle(k)
        samples.append(held())
    return samples


def _use(c: farandole.Communicator, k: int) -> None:
    """A collective, one in the background, and a message around the ring: each makes what it needs on first use."""
    assert c.all_reduce(np.full(1000, c.rank + k))[0] == sum(range(c.size)) + c.size * k
    work = c.background.all_gather(np.array([c.rank]))
    sent = c.background.send(np.array([c.rank]), (c.rank + 1) % c.size)
    got = np.array([-1])
    c.receive(got, (c.rank - 1) % c.size)
    sent.wait()
    assert got[0] == (c.rank - 1) % c.size
    assert np.asarray(work.wait()).tolist() == list(range(c.size))


def communicators(count: int) -> list[Held]:
    """Made, used and closed, one after another; every third is forgotten instead of closed."""

    def cycle(k: int) -> None:
        c = farandole.init(timeout_s=20, slot_bytes=SLOT_BYTES)
        _use(c, k)
        if k % 3:
            c.close()

    return _sampled(count, cycle)


def groups(count: int) -> list[Held]:
    """The same for groups of one communicator: all ranks in reverse order, then two parts."""
    with farandole.init(timeout_s=20, slot_bytes=SLOT_BYTES) as c:

        def cycle(k: int) -> None:
            part = c.split(0, -c.rank) if k % 2 else c.split(c.rank // 2)
            assert part is not None
            if part.size > 1:
                _use(part, k)
            part.close()

        return _sampled(count, cycle)


def torch_groups(count: int, path: str) -> list[Held]:
    """The same for the groups of PyTorch."""
    import torch
    import torch.distributed as dist

    import farandole.torch as _  # noqa: F401

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("farandole", store=dist.FileStore(path, size), rank=rank, world_size=size)

    def cycle(k: int) -> None:
        group = dist.new_group(list(range(size)))
        tensor = torch.full((10,), float(k))
        dist.all_reduce(tensor, group=group)
        assert tensor[0] == size * k
        dist.destroy_process_group(group)

    samples = _sampled(count, cycle)
    dist.destroy_process_group()
    return samples


def failures(count: int) -> list[Held]:
    """Communicators that come to a bad end: one rank's array has another length, and all hear of it."""
    from farandole.errors import MismatchError

    def cycle(_: int) -> None:
        c: Any = farandole.init(timeout_s=20, slot_bytes=SLOT_BYTES)
        try:
            c.all_reduce(np.ones(5 + (c.rank == 0)))
        except MismatchError:
            c.close()
        else:
            message = "no error"
            raise AssertionError(message)

    return _sampled(count, cycle)
