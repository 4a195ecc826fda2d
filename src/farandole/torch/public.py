"""Calls of torch.distributed with an algorithm of one's choice, and what a group has run."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from farandole.errors import UsageError
from farandole.torch.buckets import Buckets
from farandole.torch.choice import AUTO, Choice, Wish, choices
from farandole.torch.group import ProcessGroup

# Told by this, since the module of ``fully_shard`` takes seconds to load.
_SHARDED_SWITCH = "set_allocate_memory_from_process_group_for_comm"

Group = dist.ProcessGroup | None


@contextlib.contextmanager
def algorithm(wish: Wish, group: Group = None) -> Iterator[None]:
    """Inside the ``with``, the group's collectives use this algorithm; all ranks ask for the same.

    ``wish`` is ``name:option=value,...``, for each collective that has an algorithm of that name; a schedule, for its
    collective; or one of these per collective, as ``{"all_reduce": "ring", "broadcast": "tree"}``.

    Raises UnknownNameError where there is no such algorithm, UsageError for a group of another backend.
    """
    channel = _ours(group).channel
    before = channel.chosen
    channel.chosen = {**before, **choices(wish)}
    try:
        yield
    finally:
        channel.chosen = before


def last_algorithm(group: Group = None) -> str:
    """The algorithm of the last collective that this rank began in the group; empty before the first."""
    return _ours(group).channel.last_algorithm


def empty(shape: int | Sequence[int], dtype: torch.dtype | None = None, group: Group = None) -> Tensor:
    """A new tensor in memory that all ranks of the group see, with whatever values; all ranks call this alike.

    Where it, or the same part of it on every rank, is the input of an all_reduce, reduce_scatter, all_gather or
    all_to_all, other ranks read it where it is, instead of a copy. All ranks must then give a part of the same shared
    tensor: anything else is another call, and an error. Without ``dtype``, it is PyTorch's default one. The memory is
    given back when nobody has the tensor any more, the group destroyed or not.

    Raises MismatchError where ranks ask for different sizes, ResourceError where there is too little memory.
    """
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    kind = torch.get_default_dtype() if dtype is None else dtype
    return _ours(group).channel.empty(math.prod(lengths) * kind.itemsize).view(kind).view(lengths)


def zero_copy(model: nn.Module) -> None:
    """Put what a model communicates into memory that the ranks share, so that they read it where it is.

    The model is, or has parts, wrapped by DistributedDataParallel or ``fully_shard``, in a group of this backend on all
    ranks; all ranks call this, before the first step.

    - Of DistributedDataParallel, the buckets are moved, in their first and second step; and they are averaged in one
      pass, instead of being divided first. This is a communication hook, the only one that the model can have.
    - Of ``fully_shard``, the buffers are the group's: see ``Options.buffer_bytes``.

    Raises UsageError for any other model.
    """
    found = False
    for part in model.modules():
        if isinstance(part, DistributedDataParallel):
            group = _ours(part.process_group)
            part.register_comm_hook(Buckets(group, group.channel), Buckets.average)
            found = True
        elif (switch := getattr(part, _SHARDED_SWITCH, None)) is not None:
            switch(True)
            found = True
    if not found:
        raise UsageError(
            f"zero_copy is for what DistributedDataParallel or fully_shard has wrapped, which {type(model).__name__} is"
            " not, nor any part of it",
            got=type(model).__name__,
        )


def monitored_barrier(group: Group = None, timeout: timedelta | None = None, *, wait_all_ranks: bool = False) -> None:
    """Return when every rank has come; else TimeLimitError, which names those that have not, on all that have."""
    _ours(group).monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)


def all_reduce(
    tensor: Tensor,
    op: Any = dist.ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    algorithm: Choice = AUTO,
) -> Any:
    """As ``dist.all_reduce``."""
    with _asked("all_reduce", algorithm, group):
        return dist.all_reduce(tensor, op, group, async_op)


def broadcast(
    tensor: Tensor, src: int = 0, group: Group = None, async_op: bool = False, *, algorithm: Choice = AUTO
) -> Any:
    """As ``dist.broadcast``; ``src`` is a global rank."""
    with _asked("broadcast", algorithm, group):
        return dist.broadcast(tensor, src, group, async_op)


def reduce(
    tensor: Tensor,
    dst: int = 0,
    op: Any = dist.ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    algorithm: Choice = AUTO,
) -> Any:
    """As ``dist.reduce``; ``dst`` is a global rank."""
    with _asked("reduce", algorithm, group):
        return dist.reduce(tensor, dst, op, group, async_op)


def all_gather_into_tensor(
    output: Tensor, input_: Tensor, group: Group = None, async_op: bool = False, *, algorithm: Choice = AUTO
) -> Any:
    """As ``dist.all_gather_single``, which was called so before PyTorch 2.13."""
    with _asked("all_gather", algorithm, group):
        return dist.all_gather_single(output, input_, group, async_op)


def reduce_scatter_tensor(
    output: Tensor,
    input_: Tensor,
    op: Any = dist.ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    algorithm: Choice = AUTO,
) -> Any:
    """As ``dist.reduce_scatter_single``, which was called so before PyTorch 2.13."""
    with _asked("reduce_scatter", algorithm, group):
        return dist.reduce_scatter_single(output, input_, op, group, async_op)


def all_to_all_single(
    output: Tensor,
    input_: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    async_op: bool = False,
    *,
    algorithm: Choice = AUTO,
) -> Any:
    """As ``dist.all_to_all_single``."""
    with _asked("all_to_all", algorithm, group):
        return dist.all_to_all_single(output, input_, output_split_sizes, input_split_sizes, group, async_op)


def _asked(collective: str, choice: Choice, group: Group) -> contextlib.AbstractContextManager[None]:
    return algorithm({collective: choice}, group)


def _ours(group: Group) -> ProcessGroup:
    found = c10d._get_default_group() if group is None else group  # noqa: SLF001
    if not isinstance(found, ProcessGroup):
        raise UsageError(
            f'this is a process group of {type(found).__name__}, not of backend="farandole"', got=type(found).__name__
        )
    return found
