"""What the ranks do in the tests of groups: some of the ranks, many at once, made again, split, left behind."""

from __future__ import annotations

import gc
import os
import signal
import tracemalloc
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import farandole.torch
from farandole.torch.group import ProcessGroup, create
from torch_worlds import equal, group, in_turn


def some_ranks(path: str) -> None:
    """Groups whose members are not next to each other, in an order of their own, or known to themselves only."""
    with group(path) as (rank, size):
        # The last two make a group that the others hear nothing of; first, since it is named by how many there are.
        if rank >= size - 2:
            pair = dist.new_group([size - 2, size - 1], use_local_synchronization=True)
            tensor = torch.tensor([rank])
            dist.all_reduce(tensor, group=pair)
            assert tensor.item() == 2 * size - 3
        ends = dist.new_group([0, size - 1])
        turned = dist.new_group([size - 1, 0], sort_ranks=False)
        if rank in {0, size - 1}:
            assert dist.get_group_rank(turned, rank) == (1 if rank == 0 else 0)
            for members in (ends, turned):
                whole = torch.empty(2)
                dist.all_gather_into_tensor(whole, torch.tensor([float(rank)]), group=members)
                equal(whole, torch.tensor([0.0, size - 1] if members is ends else [size - 1.0, 0]))
                tensor = torch.tensor([rank])
                dist.broadcast(tensor, size - 1, group=members)
                assert tensor.item() == size - 1
            if rank == 0:
                dist.send(torch.ones(2), group=turned, group_dst=0)
            else:
                dist.recv(torch.empty(2), group=turned, group_src=1)
        dist.barrier()


def many(path: str) -> None:
    """Many groups, all in use at once, then destroyed; and again. Nothing stays behind."""
    small = farandole.torch.Options(slot_bytes=1 << 16)
    left = []
    with group(path) as (rank, size):
        for _ in range(2):
            groups = [dist.new_group([a, b], pg_options=small) for a in range(size) for b in range(a) for _ in range(3)]
            mine = [(i, one) for i, one in enumerate(groups) if isinstance(one, ProcessGroup)]
            tensors = [torch.full((10,), 10.0 * i + rank) for i, _ in mine]
            works: list[Any] = [
                dist.all_reduce(t, group=g, async_op=True) for t, (_, g) in zip(tensors, mine, strict=True)
            ]
            for work, tensor, (i, one) in zip(works, tensors, mine, strict=True):
                work.wait()
                equal(tensor, torch.full((10,), 20.0 * i + sum(dist.get_process_group_ranks(one))))
            for _, one in mine:
                dist.destroy_process_group(one)
            dist.barrier()
            left.append([len(list(Path("/proc/self", what).iterdir())) for what in ("fd", "task")])
    assert left[0] == left[1], left


def again(path: str) -> list[str]:
    """The world is destroyed and made again, over one store; then left without a word."""
    store = dist.FileStore(path, int(os.environ["FARANDOLE_WORLD_SIZE"]))
    rank, size = int(os.environ["FARANDOLE_RANK"]), int(os.environ["FARANDOLE_WORLD_SIZE"])
    heard = []
    for attempt in range(3):
        dist.init_process_group("farandole", store=dist.PrefixStore(f"{attempt}", store), rank=rank, world_size=size)
        members = dist.new_group(list(range(size)))
        tensor = torch.full((4,), float(rank + attempt))
        dist.all_reduce(tensor, group=members)
        equal(tensor, torch.full((4,), float(sum(range(size)) + size * attempt)))
        gone: Any = dist.group.WORLD
        if attempt < 2:
            dist.destroy_process_group()
            try:
                gone.allreduce([tensor]).wait()
            except farandole.errors.ClosedError as error:
                heard.append(str(error))
    return heard


def forgotten(path: str) -> None:
    """Groups that are made and destroyed leave one number each in the store, and nothing in this package's memory."""
    folder = str(Path(farandole.__file__).parent / "torch" / "*")
    with group(path) as (rank, size):
        store: Any = dist.PrefixStore("kept", dist.FileStore(f"{path}-kept", size))

        def make() -> None:
            small = farandole.torch.Options(slot_bytes=1 << 16)
            settings: Any = c10d._DistributedBackendOptions()
            settings.store, settings.group_rank, settings.group_size = store, rank, size
            settings.timeout, settings.group_id = timedelta(seconds=20), "again"
            settings.global_ranks_in_group = list(range(size))
            one = create(settings, small)
            one.allreduce([torch.ones(3)]).wait()
            one.shutdown()

        make()
        tracemalloc.start()
        before = tracemalloc.take_snapshot()
        for _ in range(20):
            make()
        gc.collect()
        dist.barrier()
        counter = f"farandole///{'-'.join(map(str, range(size)))}"
        assert store.check([counter])
        assert not any(store.check([f"{counter}/{time}/{r}"]) for time in range(22) for r in range(size))
        after = tracemalloc.take_snapshot()
        tracemalloc.stop()
        grown = [
            line
            for line in after.filter_traces([tracemalloc.Filter(True, folder)]).compare_to(before, "lineno")
            if line.count_diff >= 20
        ]
        assert not grown, grown


def split(path: str) -> None:
    """A group is split by its own method, and one that came of it once more; names, options and timeouts."""
    with group(path) as (rank, size):
        world: Any = dist.group.WORLD
        even = world.split_group(
            list(range(0, size, 2)), timeout=timedelta(seconds=20), group_name="even", group_desc="every second"
        )
        assert (even is None) == (rank % 2 == 1)
        if even is not None:
            assert (even.group_name, even.group_desc, even.rank()) == ("even", "every second", rank // 2)
            tensor = torch.tensor([rank])
            even.allreduce([tensor]).wait()
            assert tensor.item() == sum(range(0, size, 2))
            last = even.split_group([1], opts={"algorithm": "ring"})
            assert (last is not None) == (rank == 2)
            even.shutdown()
        dist.barrier()


def meshes(path: str) -> None:
    """A mesh of two dimensions, whose groups are columns and rows, and one flattened."""
    with group(path) as (rank, size):
        mesh = dist.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicas", "shards"))
        for name, wanted in (("shards", 2 * (rank - rank % 2) + 1), ("replicas", 2 * (rank % 2) + 2)):
            tensor = torch.tensor([rank])
            dist.all_reduce(tensor, group=mesh.get_group(name))
            assert tensor.item() == wanted
        everyone = mesh["replicas", "shards"]._flatten("all")
        tensor = torch.tensor([rank])
        dist.all_reduce(tensor, group=everyone.get_group())
        assert tensor.item() == sum(range(size))


def parts(path: str) -> None:
    """All that three ranks do, one after another."""
    in_turn(path, [some_ranks, many, split, forgotten])


def dead(path: str) -> list[str]:
    """A rank is gone, and the others make groups of all ranks: what they hear. A group of theirs goes on."""
    store = dist.FileStore(path, 3)
    rank = int(os.environ["FARANDOLE_RANK"])
    dist.init_process_group("farandole", store=store, rank=rank, world_size=3)  # it would wait for half an hour
    pair = dist.new_group([0, 1], use_local_synchronization=True) if rank < 2 else None
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    world: Any = dist.group.WORLD
    heard = []
    makes: list[Any] = [dist.new_group, lambda: world.split_group([0, 1, 2])]
    for make in makes:
        try:
            make()
        except farandole.errors.PeerLostError as error:
            heard.append(str(error))
    dist.all_reduce(tensor := torch.tensor([rank]), group=pair)
    assert tensor.item() == 1
    return heard


def left_after_an_error(path: str) -> str:
    """A call has failed, a rank has left after that, and the others make a group of all ranks: what they hear."""
    store = dist.FileStore(path, 3)
    rank = int(os.environ["FARANDOLE_RANK"])
    dist.init_process_group("farandole", store=store, rank=rank, world_size=3)
    heard = ""
    try:
        dist.all_reduce(torch.zeros(2 if rank == 2 else 1))
    except farandole.errors.MismatchError:
        store.set(f"heard {rank}", "")
    store.wait([f"heard {each}" for each in range(3)])  # nobody has left before all have heard
    if rank == 2:
        dist.destroy_process_group()
    else:
        try:
            dist.new_group()
        except farandole.errors.ClosedError as error:
            heard = str(error)
        store.set(f"done {rank}", "")
    store.wait(["done 0", "done 1"])  # what is heard of is not the end of a process
    return heard
