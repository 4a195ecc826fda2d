"""What the ranks do in the tests of what PyTorch adds to collectives: profiler, sparse tensors, compiler, devices."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.autograd import profiler
from torch.distributed import distributed_c10d as c10d
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import farandole.torch
from farandole.errors import LengthError
from torch_worlds import equal, group

Event = tuple[str, list[list[int]], bool]


def profiled(path: str) -> list[Event]:
    """The events of one call of each kind: name, shapes, and whether it ended on another thread."""
    with group(path) as (rank, size), profiler.profile(record_shapes=True) as found:
        tensor = torch.ones(3, 2)
        dist.all_reduce(tensor)
        dist.all_reduce(tensor[:, 0], async_op=True).wait()
        dist.all_reduce_coalesced([tensor, torch.ones(5)])
        dist.all_gather([torch.empty(3, 2) for _ in range(size)], tensor)
        dist.reduce_scatter(torch.empty(1), [torch.ones(1)] * size)
        dist.all_to_all_single(torch.empty(size), torch.ones(size), [1] * size, [1] * size)
        if rank == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)
        dist.barrier()
    return [
        (e.name, e.input_shapes, bool(e.is_async)) for e in found.function_events if e.name.startswith("farandole:")
    ]


def sparse(path: str) -> list[str]:
    """Sums of sparse tensors: other places on each rank, none at all on one, rows as values; what errors say."""
    with group(path) as (rank, size):
        for values_dims in (0, 1):
            shape = (4, 3) if values_dims else (4,)
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
                for waits in (True, False):
                    mine = [_sparse(r, shape) for r in range(size)]
                    tensor = mine[rank]
                    work = dist.all_reduce(tensor, op, async_op=not waits)
                    if work is not None:
                        work.wait()
                    wanted = _dense_sum(size, shape)
                    assert tensor.is_sparse
                    equal(tensor.to_dense(), wanted / size if op == dist.ReduceOp.AVG else wanted)
        heard = []
        wrong: list[tuple[torch.Tensor, Any, type[Exception]]] = [
            (torch.ones(3 + rank), dist.ReduceOp.SUM, LengthError),
            (torch.ones(3), dist.ReduceOp.MAX, ValueError),
        ]
        for dense, op, kind in wrong:
            try:
                dist.all_reduce(dense.to_sparse(), op)
            except kind as error:
                heard.append(str(error))
        return heard


def _sparse(rank: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Rank r has r values, some of which share a place."""
    places = torch.tensor([[(rank * 3 + i // 2) % shape[0] for i in range(rank)]], dtype=torch.int64).view(1, -1)
    values = torch.arange(1.0, 1 + rank).view(-1, *(1 for _ in shape[1:])) * torch.ones(rank, *shape[1:])
    return torch.sparse_coo_tensor(places, values * (1 + rank), shape)


def _dense_sum(size: int, shape: tuple[int, ...]) -> torch.Tensor:
    total = torch.zeros(shape)
    for rank in range(size):
        for i in range(rank):
            total[(rank * 3 + i // 2) % shape[0]] += (i + 1) * (1 + rank)
    return total


def compiled(path: str) -> list[list[float]]:
    """The losses of a model with DistributedDataParallel, as it is and compiled; DTensors and collectives, compiled."""
    with group(path) as (rank, size):
        compile_ = functools.partial(torch.compile, backend="aot_eager")
        world: Any = dist.group.WORLD
        losses = [_losses(rank, size, wrap) for wrap in (lambda model: model, compile_)]

        @functools.partial(compile_, fullgraph=True)
        def collectives(tensor: torch.Tensor) -> torch.Tensor:
            total = functional.all_reduce(tensor * 2, "sum", world)
            parts = functional.reduce_scatter_tensor(total, "avg", 0, world)
            whole: torch.Tensor = functional.all_gather_tensor(parts + 1, 0, world)
            return whole

        mesh = dist.init_device_mesh("cpu", (size,))

        @functools.partial(compile_, fullgraph=True)
        def product(a: DTensor, b: DTensor) -> DTensor:
            here: Any = a @ b
            everywhere: DTensor = here.redistribute(mesh, [Replicate()])
            return everywhere

        base = torch.arange(4.0 * size).view(2 * size, -1)
        equal(collectives(base + rank), (base * size + sum(range(size))) * 2 + 1)
        left, right = torch.arange(12.0).view(4, 3), torch.arange(15.0).view(3, 5)
        found = product(distribute_tensor(left, mesh, [Shard(0)]), distribute_tensor(right, mesh, [Replicate()]))
        equal(found.to_local(), left @ right)
        return losses


def _losses(rank: int, size: int, wrap: Any) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 1))
    inputs = torch.randn(16, 4)
    replica = torch.nn.parallel.DistributedDataParallel(model)
    step = wrap(replica)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (step(inputs[rank::size]) - inputs[rank::size].sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        dist.all_reduce(total := loss.detach().clone(), dist.ReduceOp.AVG)
        losses.append(total.item())
    return losses


class Elsewhere(torch.Tensor):
    """A tensor that says that it is on a GPU, which this machine need not have; its values are in main memory."""

    inside: torch.Tensor

    @staticmethod
    def __new__(cls: Any, inside: torch.Tensor) -> Any:  # noqa: D102
        made = torch.Tensor._make_wrapper_subclass(
            cls, inside.size(), dtype=inside.dtype, device=torch.device("xpu", 0)
        )
        made.inside = inside
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # its stub forgets that it is a class method
        cls, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        raise NotImplementedError(f"{function} of a tensor that is only sent about")


class GlooElsewhere(dist.ProcessGroup):
    """Gloo, for tensors that say that they are on a GPU."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        dist.ProcessGroup.__init__(self, rank, size)  # type: ignore[call-arg]
        self._gloo = c10d.ProcessGroupGloo(store, rank, size, timeout=timeout)
        self.calls: list[str] = []

    def _set_group_name(self, name: str) -> None:
        self.calls.append(f"named {name}")

    def __getattribute__(self, name: str) -> Any:
        if name not in {"allreduce", "broadcast", "all_gather_single", "send", "recv", "barrier", "shutdown"}:
            return super().__getattribute__(name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            gloo_name = "_allgather_base" if name == "all_gather_single" else name
            return getattr(self._gloo, gloo_name)(*(_inside(a) for a in arguments), **named)

        return call


def _inside(given: Any) -> Any:
    if isinstance(given, list):
        return [_inside(part) for part in given]
    return given.inside if isinstance(given, Elsewhere) else given


def routed(path: str) -> list[str]:
    """Calls on tensors of two devices in one group; what the second device's backend was asked to do."""
    dist.Backend.register_backend("stand_in", GlooElsewhere, devices=["xpu"])
    with group(path, backend="cpu:farandole,xpu:stand_in") as (rank, size):
        here, there = torch.full((3,), float(rank)), Elsewhere(torch.full((3,), 10.0 * rank))
        dist.all_reduce(here)
        dist.all_reduce(there)
        equal(here, torch.full((3,), float(sum(range(size)))))
        equal(there.inside, 10 * here)
        assert farandole.torch.last_algorithm() != ""
        dist.broadcast(there, size - 1, async_op=True).wait()
        whole = Elsewhere(torch.empty(3 * size))
        dist.all_gather_into_tensor(whole, Elsewhere(torch.full((3,), float(rank))))
        equal(whole.inside, torch.arange(float(size)).repeat_interleave(3))
        if rank == 0:
            dist.send(there, 1)
        elif rank == 1:
            dist.recv(there, 0)
        objects: list[Any] = [None] * size
        dist.all_gather_object(objects, rank)  # which goes through main memory
        assert objects == list(range(size))
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
        assert backend.name() == "farandole"
        second: Any = dist.group.WORLD._elsewhere(there)  # type: ignore[union-attr]
        return list(second.calls)


def without_second_device(path: str) -> str:
    """A tensor of a device that the group has no backend for; what is said about it."""
    with group(path):
        try:
            dist.all_reduce(Elsewhere(torch.ones(2)))
        except farandole.errors.UsageError as error:
            return str(error)
    return "nothing"
