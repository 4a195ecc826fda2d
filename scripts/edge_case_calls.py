"""What the edge cases give, what must come of it, and the calls of torch.distributed between the two.

Values depend on the rank and on the position, and are small enough to be exact in every dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

Tensor = torch.Tensor
REDUCING = ("all_reduce", "reduce", "reduce_scatter_tensor", "reduce_scatter")
MOVING = (
    "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter", "all_to_all_single", "all_to_all",
    "send and recv",
)  # fmt: skip


def values(rank: int, length: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """What a rank gives."""
    numbers = (torch.arange(length) * 7 + rank * 5) % 4 + 1
    if dtype == torch.bool:
        return numbers > 2
    if dtype.is_complex:
        return torch.complex(numbers.double(), (numbers % 3).double()).to(dtype)
    return numbers.to(dtype)


def same(got: Tensor, want: Tensor) -> bool:
    """Whether two tensors are equal, as far as their dtype can say; a bool must be 0 or 1 underneath."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.dtype == torch.bool and got.numel() and int(got.contiguous().view(torch.uint8).max()) > 1:
        return False
    if got.dtype.is_floating_point or got.dtype.is_complex:
        tolerance = 0.02 if got.dtype in {torch.float16, torch.bfloat16} else 1e-5
        wide = torch.complex128 if got.dtype.is_complex else torch.float64
        return torch.allclose(got.to(wide), want.to(wide), rtol=tolerance, atol=0)
    return torch.equal(got, want)


def reduced(parts: list[Tensor], op: str) -> Tensor | None:
    """What the reduction must give; None where it has no meaning, so that it must raise."""
    dtype = parts[0].dtype
    bits = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
    if op in bits:
        if dtype.is_floating_point or dtype.is_complex:
            return None
        return functools.reduce(bits[op], parts)
    if dtype == torch.bool:
        as_one = {
            "SUM": torch.logical_or,
            "PREMUL_SUM": torch.logical_or,
            "MAX": torch.logical_or,
            "PRODUCT": torch.logical_and,
            "MIN": torch.logical_and,
        }
        return functools.reduce(as_one[op], parts) if op in as_one else None
    if dtype.is_complex and op in {"MIN", "MAX"}:
        return None
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    table = torch.stack([part.to(wide) for part in parts])
    if op == "PREMUL_SUM":
        return (2 * table.sum(0)).to(dtype)
    if op == "AVG":
        total = table.sum(0)
        whole = not (dtype.is_floating_point or dtype.is_complex)
        return (torch.div(total, len(parts), rounding_mode="trunc") if whole else total / len(parts)).to(dtype)
    folds: dict[str, Callable[[Tensor], Tensor]] = {
        "SUM": lambda t: t.sum(0),
        "PRODUCT": lambda t: t.prod(0),
        "MIN": lambda t: t.amin(0),
        "MAX": lambda t: t.amax(0),
    }
    return folds[op](table).to(dtype)


def _op(name: str) -> Any:
    return dist._make_nccl_premul_sum(2.0) if name == "PREMUL_SUM" else getattr(dist.ReduceOp, name)  # noqa: SLF001


def reduce_with(collective: str, give: Callable[[int, int], Tensor], op: str, rank: int, world: int) -> bool:
    """Carry out a reduction on ``give(rank, length)``; whether it is right."""
    length = 6
    if collective in {"all_reduce", "reduce"}:
        want = reduced([give(r, length) for r in range(world)], op)
        mine = give(rank, length)
        if collective == "all_reduce":
            dist.all_reduce(mine, op=_op(op))
        else:
            dist.reduce(mine, dst=world - 1, op=_op(op))
        return want is not None and (same(mine, want) or (collective == "reduce" and rank != world - 1))
    want = reduced([give(r, length * world) for r in range(world)], op)
    whole, mine = give(rank, length * world), torch.empty_like(give(rank, length))
    if collective == "reduce_scatter_tensor":
        dist.reduce_scatter_tensor(mine, whole, op=_op(op))
    else:
        dist.reduce_scatter(mine, list(whole.chunk(world)), op=_op(op))
    return want is not None and same(mine, want[rank * length : (rank + 1) * length])


def move(
    collective: str,
    give: Callable[[int, int], Tensor],
    room: Callable[[Tensor], Tensor],
    rank: int,
    world: int,
    length: int = 6,
) -> bool:
    """Carry out a movement of what ``give`` makes, into what ``room`` makes; whether it is right."""
    mine, root = give(rank, length), world - 1
    every = [give(r, length) for r in range(world)]
    if collective == "broadcast":
        target = mine if rank == root else room(mine)
        dist.broadcast(target, src=root)
        return same(target, every[root])
    if collective == "all_gather":
        outs = [room(mine) for _ in range(world)]
        dist.all_gather(outs, mine)
        return all(map(same, outs, every))
    if collective == "all_gather_into_tensor":
        out = room(give(rank, length * world))
        dist.all_gather_into_tensor(out, mine)
        return same(out, torch.cat(every))
    if collective == "gather":
        outs = [room(mine) for _ in range(world)]
        dist.gather(mine, outs if rank == root else None, dst=root)
        return rank != root or all(map(same, outs, every))
    if collective == "scatter":
        out = room(mine)
        dist.scatter(out, every if rank == root else None, src=root)
        return same(out, every[rank])
    if collective == "all_to_all_single":
        whole = give(rank, length * world)
        out = room(whole)
        dist.all_to_all_single(out, whole)
        want = [give(r, length * world)[rank * length : (rank + 1) * length] for r in range(world)]
        return same(out, torch.cat(want))
    if collective == "all_to_all":
        outs = [room(mine) for _ in range(world)]
        dist.all_to_all(outs, [give(rank * world + r, length) for r in range(world)])
        return all(same(out, give(r * world + rank, length)) for r, out in enumerate(outs))
    if world == 1:
        return True
    right, left = (rank + 1) % world, (rank - 1) % world
    out = room(mine)
    sent = dist.isend(mine, right)
    dist.recv(out, left)
    if sent is not None:
        sent.wait()
    return same(out, every[left])


def blank(like: Tensor) -> Tensor:
    """Room for a result."""
    return torch.zeros_like(like)
