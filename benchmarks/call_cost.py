"""What a call of torch.distributed costs beside the moving of data, as a Markdown table.

    torchrun --standalone --nproc-per-node 1 benchmarks/call_cost.py

An all_reduce of 8 bytes, in microseconds, in several ways that take turns, 300 calls at a time; with one rank nothing
is moved. A group that does nothing shows what PyTorch's own function takes; one that only reads what it is passed (the
op, whether to wait, the timeout, and of the tensor where it lies, its length and its dtype) and makes a new Work, what
is the least that a group in Python takes without any looks at what it has read.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import farandole.torch  # noqa: F401 - which makes the backend known

CALLS = 300


class Done(dist.Work):
    """Work that is done."""

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002
        """Be done."""
        return True


class Nothing(dist.ProcessGroup):
    """A group that does nothing."""

    def __init__(self) -> None:
        super().__init__(0, 1)  # type: ignore[call-arg]
        self.done = Done()
        c10d._world.pg_group_ranks[self] = {0: 0}  # noqa: SLF001

    def allreduce(self, tensors: Any, opts: Any) -> Any:  # type: ignore[override]  # noqa: ARG002
        """Do nothing."""
        return self.done


class Reading(Nothing):
    """A group that reads what it is passed."""

    def allreduce(self, tensors: Any, opts: Any) -> Any:  # type: ignore[override]
        """Read, and do nothing."""
        (tensor,) = tensors
        _ = opts.reduceOp, opts.asyncOp, opts.timeout, tensor.data_ptr(), tensor.numel(), tensor.dtype
        return Done()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    dist.init_process_group("farandole")
    group: Any = dist.group.WORLD
    nothing, reading = Nothing(), Reading()
    tensor = torch.zeros(2)
    settings = dist.AllreduceOptions()
    settings.asyncOp = False
    ways: dict[str, Callable[[], object]] = {
        "`dist.all_reduce` of a group that does nothing": lambda: dist.all_reduce(tensor, group=nothing),
        "`dist.all_reduce` of a group that reads": lambda: dist.all_reduce(tensor, group=reading),
        "`dist.all_reduce`": lambda: dist.all_reduce(tensor),
        "`group.allreduce` of a group that reads": lambda: reading.allreduce([tensor], settings),
        "`group.allreduce`": lambda: group.allreduce([tensor], settings),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, call in ways.items():
            begin = time.perf_counter()
            for _ in itertools.repeat(None, CALLS):
                call()
            times[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    if dist.get_rank() == 0:
        print(f"| {dist.get_world_size()} ranks | fastest | median |\n| --- | --- | --- |")
        for name, each in times.items():
            print(f"| {name} | {min(each):.1f} | {statistics.median(each):.1f} |")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
