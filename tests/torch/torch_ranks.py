"""What the ranks of the tests of the PyTorch backend do, each in a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import farandole.torch
from torch_worlds import equal, group, in_turn

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip
LENGTHS = (0, 1, 7, 1000)


def values(rank: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers that depend on the rank and the position, so that sums are exact."""
    numbers = (torch.arange(length) * 7 + rank * 3 + 1) % 5
    return (numbers % 2 == 1) if dtype == torch.bool else numbers.to(dtype)


def reduced(size: int, length: int, dtype: torch.dtype, op: str) -> torch.Tensor:
    """What the reduction of ``values`` must give, worked out in this process."""
    rows = torch.stack([values(rank, length, dtype) for rank in range(size)])
    wide = rows if dtype in {torch.bool, torch.int64, torch.float64} else rows.to(torch.float64)
    if op in {"BAND", "BOR", "BXOR"}:
        function = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}[op]
        result = rows[0].clone()
        for row in rows[1:]:
            result = function(result, row)
        return result
    if dtype == torch.bool:
        return rows.all(0) if op in {"PRODUCT", "MIN"} else rows.any(0)
    if op == "AVG":
        rounding = None if dtype.is_floating_point else "trunc"
        return torch.div(wide.sum(0), size, rounding_mode=rounding).to(dtype)
    found: dict[str, Any] = {"SUM": wide.sum, "PRODUCT": wide.prod, "MIN": wide.amin, "MAX": wide.amax}
    combined: torch.Tensor = found[op](0).to(dtype)
    return combined


def ops_for(dtype: torch.dtype) -> list[str]:
    """The ops that go with a dtype."""
    ops = ["SUM", "PRODUCT", "MIN", "MAX"]
    if dtype != torch.bool:
        ops.append("AVG")
    return ops if dtype.is_floating_point else [*ops, "BAND", "BOR", "BXOR"]


def same(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Equal, element by element; averages of 16-bit floats to their rounding."""
    if got.dtype == wanted.dtype and torch.equal(got, wanted):
        return
    torch.testing.assert_close(got, wanted, rtol=1e-2 if got.element_size() == 2 else 1e-6, atol=0)


def reductions(path: str) -> int:
    """Every reducing collective x dtype x op, in the foreground and in the background; how many were compared."""
    compared = 0
    with group(path) as (rank, size):
        for dtype in DTYPES:
            for op in ops_for(dtype):
                kind = getattr(dist.ReduceOp, op)
                for length in LENGTHS:
                    wanted = reduced(size, length, dtype, op)
                    tensor = values(rank, length, dtype)
                    work = dist.all_reduce(tensor, kind, async_op=bool(length % 2))
                    if work is not None:
                        work.wait()
                    same(tensor, wanted)
                    tensor = values(rank, length, dtype)
                    dist.reduce(tensor, size - 1, kind)
                    same(tensor, wanted if rank == size - 1 else values(rank, length, dtype))
                    compared += 2
                whole = reduced(size, 12 * size, dtype, op)
                out = torch.empty(12, dtype=dtype)
                dist.reduce_scatter_tensor(out, values(rank, 12 * size, dtype), kind)
                same(out, whole[rank * 12 : (rank + 1) * 12])
                out = torch.empty(12, dtype=dtype)
                dist.reduce_scatter(out, list(values(rank, 12 * size, dtype).split(12)), kind)
                same(out, whole[rank * 12 : (rank + 1) * 12])
                compared += 2
    return compared


def movements(path: str) -> None:
    """The collectives that only move data, for every dtype, float8 included."""
    with group(path) as (rank, size):
        for dtype in [*DTYPES, torch.complex64, torch.float8_e4m3fn]:
            for length in LENGTHS:
                mine = [values(r, length, torch.float32).to(dtype) for r in range(size)]
                tensor = mine[rank].clone()
                dist.broadcast(tensor, size - 1)
                equal(tensor, mine[size - 1])
                outs = [torch.empty(length, dtype=dtype) for _ in range(size)]
                dist.all_gather(outs, mine[rank])
                for out, wanted in zip(outs, mine, strict=True):
                    equal(out, wanted)
                into = torch.empty(length * size, dtype=dtype)
                work = dist.all_gather_into_tensor(into, mine[rank], async_op=True)
                work.wait()
                equal(into, torch.cat(mine))
                outs = [torch.empty(length, dtype=dtype) for _ in range(size)]
                dist.gather(mine[rank], outs if rank == 0 else None, 0)
                out = torch.empty(length, dtype=dtype)
                dist.scatter(out, mine if rank == 0 else None, 0)
                equal(out, mine[rank])
                if rank == 0:
                    equal(torch.cat(outs), torch.cat(mine))
                into = torch.empty(length * size, dtype=dtype)
                dist.all_to_all_single(into, torch.cat([mine[rank]] * size))
                equal(into, torch.cat(mine))


def splits(path: str) -> None:
    """all_to_all with parts of different lengths, and a list that does not match."""
    with group(path) as (rank, size):
        sends = [(rank + d) % 3 for d in range(size)]
        receives = [(s + rank) % 3 for s in range(size)]
        source = torch.cat([torch.full((n, 2), 10.0 * rank + d) for d, n in enumerate(sends)])
        wanted = torch.cat([torch.full((n, 2), 10.0 * s + rank) for s, n in enumerate(receives)])
        out = torch.empty_like(wanted)
        dist.all_to_all_single(out, source, receives, sends)
        equal(out, wanted)
        outs = [torch.empty(n, 2) for n in receives]
        dist.all_to_all(outs, list(source.split(sends)))
        equal(torch.cat(outs), wanted)


def layouts(path: str) -> None:
    """Tensors with gaps: right answers, and what lies in the gaps is untouched."""
    makers: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda t: t[:, 1], lambda t: t[::2], lambda t: t.t(), lambda t: t[1:3, 1:3],
    ]  # fmt: skip
    with group(path) as (rank, size):
        for make in makers:
            for call in ("all_reduce", "broadcast", "async"):
                base = torch.arange(16.0).view(4, 4) + 100 * rank
                rows = [make(torch.arange(16.0).view(4, 4) + 100 * r).clone() for r in range(size)]
                before, view = base.clone(), make(base)
                wanted = rows[0] if call == "broadcast" else torch.stack(rows).sum(0)
                if call == "broadcast":
                    dist.broadcast(view, 0)
                elif call == "async":
                    dist.all_reduce(view, async_op=True).wait()
                else:
                    dist.all_reduce(view)
                make(before).copy_(wanted)
                equal(base, before)


def works(path: str) -> None:
    """Work objects: futures, chains that wait for another collective, polling."""
    with group(path) as (rank, size):
        first = torch.full((100_000,), float(rank + 1))
        second = torch.ones(10)

        def chain(future: Any) -> torch.Tensor:
            dist.all_reduce(second, async_op=True).get_future().wait()
            total: torch.Tensor = future.value()[0][:1] + second[:1]
            return total

        work = dist.all_reduce(first, async_op=True)
        total = work.get_future().then(chain).wait()
        assert total.item() == size * (size + 1) / 2 + size
        assert work.is_completed()
        assert work.is_success()
        assert work.wait(timedelta(seconds=1))
        equal(work.result()[0], first)


def forced(path: str) -> list[str]:
    """What ran when an algorithm was asked for: by call, by context, by option."""
    ran = []
    with group(path, pg_options={"algorithm": {"all_reduce": "tree"}}) as (rank, _):
        tensor = torch.full((5,), float(rank))
        dist.all_reduce(tensor)
        ran.append(farandole.torch.last_algorithm())
        farandole.torch.all_reduce(tensor, algorithm="ring")
        ran.append(farandole.torch.last_algorithm())
        with farandole.torch.algorithm("direct"):
            dist.all_reduce(tensor, async_op=True).wait()
        ran.append(farandole.torch.last_algorithm())
    return ran


def ordered(path: str) -> list[str]:
    """A deterministic group adds up in the order of the ranks, and refuses to do it in another; what it says."""
    heard = []
    with group(path, pg_options=farandole.torch.Options(deterministic=True)) as (rank, size):
        terms = [(torch.arange(9.0) + 0.1) * 10.0 ** (3 * ((r + 1) % size) - 3) for r in range(size)]
        wanted = terms[0]
        for term in terms[1:]:
            wanted = wanted + term
        dist.all_reduce(tensor := terms[rank].clone())
        equal(tensor, wanted)
        part = torch.empty(3)
        dist.reduce_scatter_single(part, terms[rank][: size * 3].clone())
        equal(part, wanted[rank * 3 : rank * 3 + 3])
        try:
            farandole.torch.all_reduce(tensor, algorithm="ring")
        except farandole.errors.UsageError as error:
            heard.append(str(error))
    return heard


def mismatch(path: str) -> str:
    """One rank reduces fewer elements; what this rank hears."""
    try:
        with group(path, timeout_s=10) as (rank, _):
            dist.all_reduce(torch.ones(3 if rank else 4), async_op=True).wait()
    except farandole.errors.MismatchError as error:
        return str(error)
    return "nothing"


def late(path: str) -> str:
    """Rank 1 makes no call; what rank 0 hears of it."""
    with group(path, timeout_s=20) as (rank, _):
        if rank == 0:
            try:
                farandole.torch.monitored_barrier(timeout=timedelta(seconds=0.5))
            except farandole.errors.TimeLimitError as error:
                return str(error)
    return ""


def groups(path: str) -> None:
    """Groups of some of the ranks, messages, objects, and a second default group."""
    with group(path) as (rank, size):
        ends = dist.new_group([0, size - 1])
        tensor = torch.ones(3)
        if rank in {0, size - 1}:
            dist.all_reduce(tensor, group=ends)
            assert tensor.tolist() == [2.0] * 3
            dist.destroy_process_group(ends)
        told: list[Any] = [None] * size
        dist.all_gather_object(told, {"rank": rank})
        assert told == [{"rank": r} for r in range(size)]
        sent, got = torch.arange(5) + rank, torch.empty(5, dtype=torch.int64)
        ops = [dist.P2POp(dist.isend, sent, (rank + 1) % size), dist.P2POp(dist.irecv, got, (rank - 1) % size)]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        equal(got, torch.arange(5) + (rank - 1) % size)
        if rank == 0:
            for _ in range(size - 1):
                sender = dist.recv(got, None, tag=3)
                equal(got, torch.arange(5) * sender)
        else:
            dist.send(torch.arange(5) * rank, 0, tag=3)
    with group(f"{path}2") as (rank, size):
        dist.barrier()


def training(path: str) -> list[float]:
    """The losses of a few steps of a small model with DistributedDataParallel, on this rank's half of the data."""
    with group(path) as (rank, size):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        inputs = torch.randn(32, 8)
        targets = inputs.sum(1, keepdim=True)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(wrapped(inputs[rank::size]), targets[rank::size])
            loss.backward()
            optimizer.step()
            dist.all_reduce(total := loss.detach().clone(), dist.ReduceOp.AVG)
            losses.append(total.item())
    return losses


def repeated(path: str) -> None:
    """The same calls many times over, with something special in between each time, which must not be overlooked."""
    with group(path) as (rank, size):
        ranks = torch.arange(float(size))
        kept = []
        for turn in range(3):
            base = torch.arange(8.0) * (turn + 1)
            total = base * size + ranks.sum()
            for make in (lambda t: t.clone(), lambda t: torch.stack([t, t]).t()[:, 0]):  # the second has gaps
                for op, wanted in (("SUM", total), ("AVG", total / size), ("MAX", base + size - 1)):
                    for waits in (True, False):
                        tensor = make(base + rank)
                        work = dist.all_reduce(tensor, getattr(dist.ReduceOp, op), async_op=not waits)
                        if work is not None:
                            work.wait()
                        equal(tensor.contiguous(), wanted)
            negative = torch._neg_view(base + rank)
            dist.all_reduce(negative)
            equal(negative.resolve_neg(), -total)
            options = dist.AllreduceOptions()
            options.asyncOp = False
            world: Any = dist.group.WORLD
            kept.append((world.allreduce([tensor := base + rank], options), tensor))
            _moved(base, rank, size)
            with farandole.torch.algorithm({"all_reduce": "tree" if turn % 2 else "ring"}):
                dist.all_reduce(tensor)
                assert farandole.torch.last_algorithm() == ("tree" if turn % 2 else "ring")
        assert all(work.result()[0] is tensor for work, tensor in kept)


def _moved(base: torch.Tensor, rank: int, size: int) -> None:
    """Collectives from one tensor to another, which once are the same memory."""
    length = len(base)
    whole = torch.empty(length * size)
    for source in (torch.empty(length), whole[rank * length : (rank + 1) * length], whole[:length]):
        source.copy_(base + rank)
        dist.all_gather_single(whole, source)
        equal(whole, torch.cat([base + r for r in range(size)]))
        part = torch.empty(length)
        dist.reduce_scatter_single(part, whole)
        equal(part, (base + rank) * size)
        out = torch.empty(length * size)
        dist.all_to_all_single(out, whole)
        equal(out, torch.cat([base + rank] * size))
        with contextlib.suppress(ValueError):
            dist.all_to_all_single(out.view(1, -1), whole.view(1, -1))
            raise AssertionError("one row cannot be shared out")


def alone(path: str) -> list[str]:
    """What a rank sends itself, in either order; what it has not sent; what there is not."""
    with group(path, timeout_s=0.3) as (rank, _):
        world: Any = dist.group.WORLD
        sent, got = torch.arange(3.0), torch.empty(3)
        world.send([sent], rank, 1)
        world.recv([got], rank, 1).wait()
        equal(got, sent)
        heard = []
        early, late = world.recv([torch.empty(3)], rank, 2), world.recv([torch.empty(3)], rank, 2)
        for vain in (early, late):
            try:
                vain.wait()
            except farandole.errors.TimeLimitError as error:
                heard.append(str(error))
        assert early.is_completed()
        assert not early.is_success()
        again = world.recv([got.zero_()], rank, 2)
        world.send([sent], rank, 2)
        again.wait()
        equal(got, sent)
        try:
            dist.all_reduce(sent.to(torch.float8_e4m3fn))
        except farandole.errors.UnsupportedError as error:
            heard.append(str(error))
        for wrong in ({"algoritm": "ring"}, {"slot_bytes": 5}):
            try:
                dist.new_group(pg_options=wrong)
            except farandole.errors.UsageError as error:
                heard.append(str(error))
        return heard


def collectives(path: str) -> None:
    """All that three ranks do, one after another."""
    in_turn(path, [movements, repeated, splits, layouts, works, groups])
