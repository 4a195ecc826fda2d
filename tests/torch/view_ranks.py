"""What the ranks do in the tests of conjugate and negative views: tensors whose memory holds other values than they.

PyTorch's own functions refuse most conjugate tensors before they come to a backend, so the group is called itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torch_worlds import equal, group

Bit = Callable[[Tensor], Tensor]


def _imaginary(tensor: Tensor) -> Tensor:
    """Negative, and with gaps."""
    return tensor.conj().imag


VIEWS: tuple[Bit, ...] = (torch.conj, torch._neg_view, _imaginary)


def views(path: str) -> int:
    """Every collective from and to such views, on all ranks and on every second one only; how many were right."""
    right = 0
    with group(path) as (rank, size):
        for bit in VIEWS:
            for on_all in (True, False):
                for made in _calls(bit if on_all or rank % 2 == 0 else _plainly(bit), bit, rank, size):
                    for got, wanted in zip(*made, strict=True):
                        equal(_values(got), wanted)
                        right += 1
    return right


def _plainly(bit: Bit) -> Bit:
    """The same values as they are."""
    return lambda tensor: _values(bit(tensor))


def _values(tensor: Tensor) -> Tensor:
    return tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _base(rank: int, length: int) -> Tensor:
    return torch.complex(torch.arange(1.0, length + 1) + rank, torch.arange(2.0, length + 2) * (rank + 1))


def _calls(bit: Bit, wanted_bit: Bit, rank: int, size: int) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Pairs of what came out and what should."""
    world: Any = dist.group.WORLD
    every = [_values(wanted_bit(_base(r, size))) for r in range(size)]
    total, whole = torch.stack(every).sum(0), torch.cat(every)
    mine = bit(_base(rank, size))

    def room(length: int = size) -> Tensor:
        return bit(torch.zeros(length, dtype=torch.complex64))

    def copy() -> Tensor:
        return bit(_base(rank, size))

    last = size - 1
    made: list[tuple[list[Tensor], list[Tensor]]] = []
    reduced = copy()
    world.allreduce([reduced]).wait()
    made.append(([reduced, mine], [total, every[rank]]))
    options = dist.BroadcastOptions()
    options.rootRank = last
    sent = copy()
    world.broadcast([sent], options).wait()
    made.append(([sent], [every[last]]))
    to_root = dist.ReduceOptions()
    to_root.rootRank = last
    reduced = copy()
    world.reduce([reduced], to_root).wait()
    made.append(([reduced], [total if rank == last else every[rank]]))
    pieces = [room() for _ in range(size)]
    world.allgather([pieces], [mine]).wait()
    made.append((pieces, every))
    one = room(size * size)
    world.all_gather_single(one, mine).wait()
    made.append(([one], [whole]))
    collect = dist.GatherOptions()
    collect.rootRank = last
    pieces = [room() for _ in range(size)]
    world.gather([pieces] if rank == last else [], [mine], collect).wait()
    if rank == last:
        made.append((pieces, every))
    share = dist.ScatterOptions()
    share.rootRank = last
    part = room()
    world.scatter([part], [[bit(_base(r, size)) for r in range(size)]] if rank == last else [], share).wait()
    made.append(([part], [every[rank]]))
    part = room()
    world.reduce_scatter([part], [[copy() for _ in range(size)]]).wait()
    made.append(([part], [total]))
    part = room(1)
    world.reduce_scatter_single(part, mine).wait()
    made.append(([part], [total[rank : rank + 1]]))
    swapped = room()
    world.all_to_all_single(swapped, mine, [], []).wait()
    with_splits = room()
    world.all_to_all_single(with_splits, mine, [1] * size, [1] * size).wait()
    parts = [room(1) for _ in range(size)]
    world.alltoall(parts, list(mine.split(1))).wait()
    across = torch.stack(every)[:, rank].contiguous()
    made.append(([swapped, with_splits, *parts], [across, across, *across.split(1)]))
    went = world.send([mine], (rank + 1) % size, 3)
    came = room()
    world.recv([came], (rank - 1) % size, 3).wait()
    went.wait()
    made.append(([came], [every[rank - 1]]))
    return made
