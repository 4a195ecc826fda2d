"""The edge cases that ``edge_cases.py`` runs, by area: each says whether the result is right, or raises."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from edge_case_calls import MOVING, REDUCING, Tensor, blank, move, reduce_with, reduced, same, values

DTYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool, torch.float8_e4m3fn,
)  # fmt: skip
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")


@dataclass(frozen=True)
class Case:
    """One case: the row and the column that it belongs to, and what every rank does."""

    row: str
    column: str
    run: Callable[[int, int], bool]


@dataclass(frozen=True)
class Area:
    """One table."""

    title: str
    text: str
    worlds: tuple[int, ...]
    cases: Callable[[int], Iterator[Case]]


def cases(area: str, world: int) -> Iterator[Case]:
    """The cases of an area, always in the same order."""
    return AREAS[area].cases(world)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _reductions(_: int) -> Iterator[Case]:
    for collective in REDUCING:
        for op in OPS:
            for dtype in DTYPES:
                give = functools.partial(values, dtype=dtype)

                def run(rank: int, world: int, c: str = collective, g: Any = give, o: str = op) -> bool:
                    return reduce_with(c, g, o, rank, world)

                yield Case(f"{collective}, {op}", _name(dtype), run)


def _movements(_: int) -> Iterator[Case]:
    for collective in MOVING:
        for dtype in DTYPES:
            give = functools.partial(values, dtype=dtype)

            def run(rank: int, world: int, c: str = collective, g: Any = give) -> bool:
                return move(c, g, blank, rank, world)

            yield Case(collective, _name(dtype), run)


def _column(rank: int, length: int) -> Tensor:
    whole = torch.zeros(length, 3)
    whole[:, 1] = values(rank, length)
    return whole[:, 1]


def _every_second(rank: int, length: int) -> Tensor:
    whole = torch.zeros(2 * length)
    whole[::2] = values(rank, length)
    return whole[::2]


def _offset(rank: int, length: int) -> Tensor:
    return torch.cat([torch.zeros(5), values(rank, length)])[5:]


def _expanded(rank: int, length: int) -> Tensor:
    return values(rank, 1).expand(length)


def _conjugate(rank: int, length: int) -> Tensor:
    return values(rank, length, torch.complex64).conj()


LAYOUTS: dict[str, Callable[[int, int], Tensor]] = {
    "a column": _column,
    "every second": _every_second,
    "an offset": _offset,
    "expanded": _expanded,
    "conjugate": _conjugate,
}


def _strided_room(like: Tensor) -> Tensor:
    return torch.zeros(*like.shape, 2, dtype=like.dtype)[..., 0]


def _layouts(_: int) -> Iterator[Case]:
    for collective in (*REDUCING, *MOVING):
        for name, give in LAYOUTS.items():

            def run(rank: int, world: int, c: str = collective, g: Any = give) -> bool:
                return reduce_with(c, g, "SUM", rank, world) if c in REDUCING else move(c, g, blank, rank, world)

            yield Case(collective, f"from {name}", run)
        if collective in MOVING:

            def into(rank: int, world: int, c: str = collective) -> bool:
                return move(c, values, _strided_room, rank, world)

            yield Case(collective, "into strided", into)
    for name in ("transposed", "neighbours of a column", "0-dim", "inference mode"):
        yield Case("all_reduce, in place", name, functools.partial(_in_place, name))


def _in_place(name: str, rank: int, world: int) -> bool:
    if name == "transposed":
        mine = values(rank, 6).reshape(2, 3).t()
        dist.all_reduce(mine)
        return same(mine, sum(values(r, 6).reshape(2, 3) for r in range(world)).t())  # type: ignore[union-attr]
    if name == "neighbours of a column":
        whole = torch.full((4, 3), -7.0)
        whole[:, 1] = rank + 1
        dist.all_reduce(whole[:, 1])
        beside = bool((whole[:, [0, 2]] == -7).all())
        return beside and bool((whole[:, 1] == world * (world + 1) / 2).all())
    if name == "0-dim":
        one = torch.tensor(float(rank + 1))
        dist.all_reduce(one)
        return one.item() == world * (world + 1) / 2
    with torch.inference_mode():
        one = torch.full((3,), float(rank + 1))
        dist.all_reduce(one)
        return bool((one == world * (world + 1) / 2).all())


def _sizes(world: int) -> Iterator[Case]:
    lengths = dict.fromkeys((0, 1, world - 1, world, world + 1, 2 * world - 1, 17, 5003, 65537, 300_001))
    for collective in ("all_reduce", "reduce", *MOVING):
        for length in lengths:

            def run(rank: int, world: int, c: str = collective, n: int = length) -> bool:
                if c in MOVING:
                    return move(c, values, blank, rank, world, n)
                mine, want = values(rank, n), reduced([values(r, n) for r in range(world)], "SUM")
                dist.all_reduce(mine) if c == "all_reduce" else dist.reduce(mine, dst=0)
                return (c == "reduce" and rank != 0) or (want is not None and same(mine, want))

            yield Case(collective, str(length), run)
    for name in ("reduce_scatter", "all_gather", "all_to_all_single", "all_to_all"):
        yield Case(f"{name}, parts of different lengths", str(world), functools.partial(_uneven, name))


def _uneven(name: str, rank: int, world: int) -> bool:
    sizes = [3 * r + 1 for r in range(world)]
    if name == "reduce_scatter":
        out = torch.zeros(sizes[rank])
        dist.reduce_scatter(out, [values(rank, n) for n in sizes])
        return same(out, sum(values(r, sizes[rank]) for r in range(world)))  # type: ignore[arg-type]
    if name == "all_gather":
        outs = [torch.zeros(n) for n in sizes]
        dist.all_gather(outs, values(rank, sizes[rank]))
        return all(same(out, values(r, n)) for r, (out, n) in enumerate(zip(outs, sizes, strict=True)))
    # Rank s sends s + d elements to rank d.
    sent, come = [rank + d for d in range(world)], [s + rank for s in range(world)]
    if name == "all_to_all":
        outs = [torch.zeros(n) for n in come]
        dist.all_to_all(outs, [values(rank, n) for n in sent])
        return all(same(out, values(s, n)) for s, (out, n) in enumerate(zip(outs, come, strict=True)))
    out = torch.zeros(sum(come))
    dist.all_to_all_single(out, torch.cat([values(rank, n) for n in sent]), come, sent)
    return same(out, torch.cat([values(s, n) for s, n in enumerate(come)]))


def _groups(_: int) -> Iterator[Case]:
    for name, run in (
        ("a part of the ranks", _part),
        ("in another order", _reordered),
        ("called by one who is not in it", _stranger),
        ("two, in opposite order, in the background", _opposite),
        ("of one rank", _alone),
    ):
        yield Case("a group", name, run)
    for name, run in (("to oneself", _to_oneself), ("from any source", _any_source), ("tags out of order", _tags)):
        yield Case("messages", name, run)
    for name, run in (
        ("async, waited for in reverse", _async),
        ("coalesced", _coalesced),
        ("objects", _objects),
        ("barrier", _barrier),
    ):
        yield Case("other", name, run)


def _part(rank: int, world: int) -> bool:
    group = dist.new_group([0, world - 1])
    if rank not in {0, world - 1}:
        return True
    mine = torch.tensor([float(rank)])
    dist.all_reduce(mine, group=group)
    return mine.item() == world - 1


def _reordered(rank: int, world: int) -> bool:
    group = dist.new_group(list(reversed(range(world))))
    outs = [torch.zeros(1) for _ in range(world)]
    dist.all_gather(outs, torch.tensor([float(rank)]), group=group)
    return sorted(out.item() for out in outs) == [float(r) for r in range(world)]


def _stranger(rank: int, _: int) -> bool:
    group = dist.new_group([0])
    mine = torch.tensor([float(rank)])
    dist.all_reduce(mine, group=group)  # PyTorch warns, and does nothing
    return mine.item() == rank


def _opposite(rank: int, world: int) -> bool:
    groups = [dist.new_group(list(range(world))) for _ in range(2)]
    mine = [torch.ones(50_000), torch.ones(50_000) * 2]
    order = (0, 1) if rank % 2 else (1, 0)
    works = [dist.all_reduce(mine[k], group=groups[k], async_op=True) for k in order]
    for work in works:
        work.wait()
    return all(bool((tensor == world * (k + 1)).all()) for k, tensor in enumerate(mine))


def _alone(rank: int, world: int) -> bool:
    groups = [dist.new_group([r]) for r in range(world)]
    mine = torch.full((3,), float(rank))
    dist.all_reduce(mine, group=groups[rank], op=dist.ReduceOp.AVG)
    return bool((mine == rank).all())


def _to_oneself(rank: int, _: int) -> bool:
    out, mine = torch.zeros(3), values(rank, 3)
    work = dist.isend(mine, rank)
    dist.recv(out, rank)
    if work is not None:
        work.wait()
    return same(out, mine)


def _any_source(rank: int, world: int) -> bool:
    if rank:
        dist.send(values(rank, 4), 0)
        return True
    come = []
    for _ in range(world - 1):
        out = torch.zeros(4)
        sender = dist.recv(out)
        come.append(sender)
        if not same(out, values(sender, 4)):
            return False
    return sorted(come) == list(range(1, world))


def _tags(rank: int, world: int) -> bool:
    if world == 1 or rank > 1:
        return True
    if rank == 0:
        works = [dist.isend(values(tag, 5), 1, tag=tag) for tag in (1, 2)]
        for work in works:
            if work is not None:
                work.wait()
        return True
    outs = {tag: torch.zeros(5) for tag in (2, 1)}
    for tag, out in outs.items():
        dist.recv(out, 0, tag=tag)
    return all(same(out, values(tag, 5)) for tag, out in outs.items())


def _async(rank: int, world: int) -> bool:
    mine = [values(rank + k, 1000 * k + 1) for k in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in mine]
    for work in reversed(works):
        work.wait()
    return all(
        same(tensor, sum(values(r + k, 1000 * k + 1) for r in range(world)))  # type: ignore[arg-type]
        for k, tensor in enumerate(mine)
    )


def _coalesced(rank: int, world: int) -> bool:
    mine = [torch.full((n,), float(rank + 1)) for n in (1, 2, 3)]
    with dist._coalescing_manager():  # type: ignore[attr-defined] # noqa: SLF001 - DeepSpeed and FSDP use it
        for tensor in mine:
            dist.all_reduce(tensor)
    return all(bool((tensor == world * (world + 1) / 2).all()) for tensor in mine)


def _objects(rank: int, world: int) -> bool:
    come: list[Any] = [None] * world
    dist.all_gather_object(come, {"rank": rank, "text": "x" * rank})
    return come == [{"rank": r, "text": "x" * r} for r in range(world)]


def _barrier(_: int, __: int) -> bool:
    dist.barrier()
    return True


def _disagreement(_: int) -> Iterator[Case]:
    """The last rank differs; then all meet again, since one that needs nothing of the others hears of it only there."""
    ones, world = torch.ones, dist.get_world_size
    calls: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "fewer elements": (lambda: dist.all_reduce(ones(64)), lambda: dist.all_reduce(ones(63))),
        "more elements": (lambda: dist.all_reduce(ones(64)), lambda: dist.all_reduce(ones(65))),
        "many more elements": (lambda: dist.all_reduce(ones(64)), lambda: dist.all_reduce(ones(99_999))),
        "another dtype": (
            lambda: dist.all_reduce(ones(64)),
            lambda: dist.all_reduce(ones(64, dtype=torch.int32)),
        ),
        "another op": (
            lambda: dist.all_reduce(ones(64)),
            lambda: dist.all_reduce(ones(64), op=dist.ReduceOp.MAX),
        ),
        "another root": (
            lambda: dist.broadcast(ones(64), 0),
            lambda: dist.broadcast(ones(64), world() - 1),
        ),
        "another collective": (
            lambda: dist.all_reduce(ones(64)),
            lambda: dist.all_gather([ones(64) for _ in range(world())], ones(64)),
        ),
        "one call more": (lambda: None, lambda: dist.all_reduce(ones(8))),
    }
    for name, (most, last) in calls.items():

        def run(rank: int, world: int, most: Any = most, last: Any = last) -> bool:
            (last if rank == world - 1 else most)()
            dist.all_reduce(torch.ones(3))
            return True

        yield Case(name, "", run)


AREAS = {
    "reductions": Area(
        "Reductions: dtypes and ops",
        "Where an op has no meaning for a dtype, only raising is right. Bool: the sum is *or*, the product *and*.",
        (1, 3),
        _reductions,
    ),
    "movements": Area("Movements: dtypes", "", (1, 3), _movements),
    "layouts": Area("Layouts", "Tensors that are not contiguous, read and written.", (2, 3), _layouts),
    "sizes": Area("Lengths", "Elements per rank; also parts that differ from rank to rank.", (1, 2, 3), _sizes),
    "groups": Area("Groups, messages and the rest", "", (3,), _groups),
    "disagreement": Area(
        "Ranks that disagree", "The last rank makes another call than the others, and then all make the same.", (2, 3),
        _disagreement,
    ),
}  # fmt: skip
