"""The sum of sparse tensors (COO), which may have values in different places on every rank.

The ranks tell each other how many values they have, then exchange places and values, and each adds them up in the
order of the ranks: so all have the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from farandole.errors import LengthError, UnsupportedError
from farandole.torch.arguments import reduction, timeout_of
from farandole.torch.channel import Channel
from farandole.torch.work import Work, together


def all_reduce(channel: Channel, tensor: Tensor, options: Any) -> Work:
    """Sum or average the sparse tensors of all ranks, in place.

    Raises UnsupportedError for another op, LengthError on all ranks where shapes differ.
    """
    op, factor = reduction(options, tensor.dtype)
    if op not in {"sum", "avg"} or factor is not None:
        raise UnsupportedError(
            f"all_reduce: {op!r} is for dense tensors; sparse ones can be summed and averaged", op=op
        )
    timeout_s = timeout_of(options)
    mine = tensor.detach().coalesce()
    lengths = _lengths(channel, mine, timeout_s)
    places, values = mine.indices().t().contiguous(), mine.values().contiguous()
    works: list[Work] = []
    rooms: list[Tensor] = []
    for part in (places, values):
        width = math.prod(part.shape[1:])
        counts = tuple(length * width for length in lengths)
        room = torch.empty((sum(lengths), *part.shape[1:]), dtype=part.dtype)
        works.append(channel.run("all_gather", counts, part, room, [room], timeout_s=timeout_s))
        rooms.append(room)

    def finish() -> None:
        total = torch.sparse_coo_tensor(rooms[0].t(), rooms[1], mine.shape, is_coalesced=False).coalesce()
        if op == "avg":
            rounding = None if total.dtype.is_floating_point or total.dtype.is_complex else "trunc"
            torch.div(total.values(), channel.size, rounding_mode=rounding, out=total.values())
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            tensor.copy_(total)  # a detached one would keep its places to itself

    return together(works, [tensor], finish)


def _lengths(channel: Channel, tensor: Tensor, timeout_s: float) -> list[int]:
    """How many values each rank has; LengthError where tensors are not alike."""
    mine = torch.tensor([tensor._nnz(), tensor.sparse_dim(), *tensor.shape])  # noqa: SLF001
    all_ = torch.empty((channel.size, len(mine)), dtype=mine.dtype)
    counts = (len(mine),) * channel.size
    channel.run("all_gather", counts, mine, all_, [all_], timeout_s=timeout_s, waits=True)
    for rank, row in enumerate(all_.tolist()):
        if row[1:] != all_[0, 1:].tolist():
            raise LengthError(
                f"all_reduce: sparse tensors must be alike on all ranks: rank 0 has shape {all_[0, 2:].tolist()} with"
                f" {int(all_[0, 1])} sparse dimensions, rank {rank} {row[2:]} with {row[1]}; all ranks see this error",
                rank=rank,
            )
    return [int(length) for length in all_[:, 0]]
