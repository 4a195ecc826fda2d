"""What the ranks do in the tests of memory that they share: tensors, buckets of DDP, buffers of FSDP2."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import farandole.torch
from farandole.torch import buckets, moving
from farandole.torch.group import ProcessGroup
from torch_worlds import equal, group, in_turn

LENGTH = 60_000  # of float32: enough to be read in place


def segments() -> int:
    """How many mappings of shared memory this process has; what the last call in the background used is forgotten."""
    dist.all_reduce(torch.ones(1), async_op=True).wait()
    gc.collect()
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("farandole")


def mine(rank: int, length: int = LENGTH) -> Tensor:
    return (torch.arange(length) % 101 + 7.0 * rank).to(torch.float32)


def ran() -> str:
    """The call that this rank has made last, in words."""
    world: Any = dist.group.WORLD
    engine = world.channel.engine
    return str(engine.states()[world.rank()][2])


def tensors(path: str) -> None:
    """Every collective from and to a shared tensor: in place, as a part, not at all in it; then it is given back."""
    with group(path) as (rank, size):
        before = segments()
        shared = farandole.torch.empty((2 * size, LENGTH // 2), torch.float32)
        assert shared.shape == (2 * size, LENGTH // 2)
        flat, all_ = shared.view(-1), torch.stack([mine(r, size * LENGTH) for r in range(size)])
        for op, wanted in ((dist.ReduceOp.SUM, all_.sum(0)), (dist.ReduceOp.MAX, all_.amax(0))):
            for _ in range(3):
                flat.copy_(all_[rank])
                dist.all_reduce(flat, op, async_op=True).wait()
                assert "shared array 1 in place" in ran()
                equal(flat, wanted)
        part = flat[LENGTH // 4 : 3 * LENGTH // 4]
        part.copy_(all_[rank][: LENGTH // 2])
        dist.all_reduce(part, dist.ReduceOp.SUM)
        equal(part, all_[:, : LENGTH // 2].sum(0))
        equal(flat[: LENGTH // 4], all_.amax(0)[: LENGTH // 4])
        _reduce_scatters(rank, flat, all_)
        _gathers(rank, size, flat, all_)
        flat.copy_(all_[rank])
        routed = torch.empty_like(flat)
        dist.all_to_all_single(routed, flat)
        assert "shared array 1" in ran()
        equal(routed, all_.view(size, size, -1)[:, rank].flatten())
        private = mine(rank)
        dist.all_reduce(private)  # as long as one that was shared, and it is not
        equal(private, sum((mine(r) for r in range(size)), torch.zeros(LENGTH)))
        del shared, flat, part
        assert segments() == before


def _reduce_scatters(rank: int, flat: Tensor, all_: Tensor) -> None:
    own = slice(rank * LENGTH, (rank + 1) * LENGTH)
    for target in (torch.empty(LENGTH), flat[own]):
        for _ in range(2):
            flat.copy_(all_[rank])
            dist.reduce_scatter_single(target, flat)
            assert "shared array 1" in ran()
            equal(target, all_.sum(0)[own])


def _gathers(rank: int, size: int, flat: Tensor, all_: Tensor) -> None:
    wanted = all_[:, :LENGTH].flatten()
    for source, target in (
        (flat[:LENGTH], torch.empty(size * LENGTH)),
        (flat[rank * LENGTH : (rank + 1) * LENGTH], flat),
    ):
        for _ in range(2):
            source.copy_(all_[rank][:LENGTH])
            dist.all_gather_single(target, source)
            assert "shared array 1" in ran()
            equal(target, wanted)


def unlike(path: str) -> str:
    """One rank gives a shared tensor, the others one of their own; what is said about it."""
    with group(path) as (rank, _):
        shared = farandole.torch.empty(LENGTH)
        try:
            dist.all_reduce(shared if rank == 0 else torch.empty(LENGTH))
        except farandole.errors.MismatchError as error:
            return str(error)
    return "nothing"


def network() -> nn.Sequential:
    """The same on all ranks; its gradients take about half a megabyte."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(96, 320), nn.ReLU(), nn.Linear(320, 320), nn.ReLU(), nn.Linear(320, 5))


def trained(model: nn.Module, rank: int, steps: int, accumulate: bool = False) -> list[Tensor]:
    """Gradients and weights after some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        inputs = torch.randn(8, 96, generator=generator)
        if accumulate and isinstance(model, DistributedDataParallel):
            with model.no_sync():
                model(inputs).square().mean().backward()
        model(inputs + step).square().mean().backward()
        optimizer.step()
        last = [weight.grad.detach().clone() for weight in model.parameters() if weight.grad is not None]
        optimizer.zero_grad(set_to_none=bool(step % 2))
    return last + [weight.detach().clone() for weight in model.parameters()]


def replicas(path: str) -> None:
    """DDP with its buckets in shared memory has the bits that it has without; and all of it is given back."""
    with group(path) as (rank, size), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*ordinary memory")
        before = segments()
        for view in (False, True):
            for small in (True, False):
                results = []
                for shares in (False, True):
                    model = DistributedDataParallel(
                        network(), gradient_as_bucket_view=view, bucket_cap_mb=0.4 if small else 25
                    )
                    if shares:
                        farandole.torch.zero_copy(model)
                    else:
                        model.register_comm_hook(None, _averaging)
                    results.append(trained(model, rank, 5, accumulate=small))
                    if shares:
                        assert small or "in place" in ran()
                        assert segments() > before
                    del model
                for one, other in zip(*results, strict=True):
                    equal(one, other)
        if size == 2:  # halves are exact, so it does not matter that DDP divides first
            plain = trained(DistributedDataParallel(network()), rank, 5)
            for one, other in zip(plain, results[0], strict=True):
                equal(one, other)
        dist.barrier()
        assert segments() == before


def _averaging(_: None, bucket: Any) -> Any:
    work: Any = dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


_averaging.__annotations__.clear()  # PyTorch takes them for real ones only


def joined(path: str) -> None:
    """Ranks with different numbers of batches, buckets shared or not: the same weights, gradients untouched."""
    with group(path) as (rank, _), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*ordinary memory")
        results = []
        for hook in (False, True):
            model = DistributedDataParallel(network(), gradient_as_bucket_view=True, bucket_cap_mb=0.4)
            if hook:
                farandole.torch.zero_copy(model)
            else:
                model.register_comm_hook(None, _averaging)
            with Join([model]):
                results.append(trained(model, rank, 2 + 2 * rank))
            results[-1] += [weight.detach().clone() for weight in model.parameters()]
            gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
            results[-1] += [gradient.clone() for gradient in gradients]
        for one, other in zip(*results, strict=True):
            equal(one, other)


def without_room(path: str) -> None:
    """Buckets that one rank cannot move stay where they are on all, with a warning; the bits are the same."""
    with group(path) as (rank, _), pytest.MonkeyPatch.context() as patch:
        results = []
        for refused in (False, True):
            if refused:
                patch.setattr(buckets, "move", lambda *given, **named: rank != 0 and moving.move(*given, **named))
            model = DistributedDataParallel(network(), gradient_as_bucket_view=True)
            farandole.torch.zero_copy(model)
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                results.append(trained(model, rank, 4))
            said = [str(warning.message) for warning in heard if "ordinary memory" in str(warning.message)]
            assert bool(said) == refused, said
        for one, other in zip(*results, strict=True):
            equal(one, other)


def shards(path: str) -> None:
    """FSDP2 with the group's buffers has the bits that it has without; they are limited, and given back."""
    from torch.distributed.fsdp import fully_shard

    with group(path, pg_options={"buffer_bytes": 3 << 20}) as (rank, _):
        before = segments()
        world: Any = dist.group.WORLD
        results = []
        for shares in (False, True):
            model = network()
            for layer in model:
                if isinstance(layer, nn.Linear):
                    fully_shard(layer)
            fully_shard(model)
            if shares:
                farandole.torch.zero_copy(model)
            got = trained(model, rank, 4)
            results.append([tensor.to_local() for tensor in got])  # type: ignore[attr-defined]
            assert (world.pool.size_bytes > 0) == shares
        assert world.pool.size_bytes <= 3 << 20
        assert segments() > before
        for one, other in zip(*results, strict=True):
            equal(one, other)
        del model, got
        world.pool.clear()
        assert segments() == before


def buffers(path: str) -> None:
    """A buffer is given out again once all ranks have dropped it, another one before; and no more than allowed."""
    with group(path, pg_options={"buffer_bytes": 4 << 20}) as (rank, size):
        world: Any = dist.group.WORLD
        assert isinstance(world, ProcessGroup)
        backend = world._get_backend(torch.device("cpu"))
        assert backend.supports_tensor_alloc(torch.device("cpu"))

        def take(count: int) -> Tensor:
            made: Tensor = backend.allocate_tensor(count, dtype=torch.float32, device=torch.device("cpu"))
            return made

        first = take(250_000)
        at = first.data_ptr()
        held = first if rank == size - 1 else None
        del first
        second = take(250_000)
        assert second.data_ptr() != at  # the last rank still has it
        assert world.pool.size_bytes == 2_000_000
        del held, second
        third = take(250_000)  # what has been dropped since the last time is not known yet
        assert third.data_ptr() not in {at, 0}
        del third
        again = [take(200_000), take(300_000)]
        assert again[0].data_ptr() == at
        assert again[1].data_ptr() != at
        more = [take(250_000) for _ in range(3)]
        assert world.pool.size_bytes <= 4 << 20
        for tensor in (*again, *more):
            tensor.fill_(rank)
            dist.all_reduce(tensor)
            assert tensor.eq(sum(range(size))).all()


def all_of(path: str) -> None:
    """All that ranks do with shared memory, one after another."""
    in_turn(path, [replicas, without_room, shards, tensors, joined])


def some_of(path: str) -> None:
    """What differs with the number of ranks."""
    in_turn(path, [tensors, buffers, joined])
