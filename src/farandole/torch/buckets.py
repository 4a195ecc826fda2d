"""The buckets of DistributedDataParallel in memory that the ranks share, averaged in one pass.

The rules:

- DDP makes its buckets when it is made, and anew after the first step. So a bucket is moved in its first and its second
  call: all ranks make these together, whatever has become of the storages of each.
- Who cannot have its bucket moved tells the others, and none of them shares that bucket.
- A rank whose bucket is another one than that which was moved (one that has no more batches answers with zeros, under
  ``Join``) lends its shared memory to the call, and gets back what was there.
- DDP divides every gradient by the number of ranks before they are summed. A hook that averages spares it that pass
  over the memory.
"""
# Without postponed annotations: PyTorch compares those of a hook.

import warnings
from collections import Counter
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from farandole.errors import ResourceError
from farandole.run.shared import SHARED_FROM_BYTES
from farandole.torch.channel import Channel
from farandole.torch.moving import move
from farandole.torch.profiling import Shown, shown
from farandole.torch.work import Work

CALLS_MOVED = 2
GradientFuture = torch.futures.Future[Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class _Room:
    """Where a bucket lies that was moved: its elements in the shared array, and the storage that shows them."""

    memory: Tensor
    storage: torch.UntypedStorage  # kept, so that no other one can have its address


class Buckets(Shown):
    """What averages the buckets of one model."""

    def __init__(self, group: dist.ProcessGroup, channel: Channel) -> None:
        """``channel`` is that of the group."""
        self._group = group
        self._channel = channel
        self._calls: Counter[tuple[int, int]] = Counter()
        self._rooms: dict[int, _Room] = {}

    def average(self, bucket: dist.GradBucket) -> GradientFuture:
        """A communication hook: average one bucket over all ranks."""
        buffer = bucket.buffer()
        room = self._room(bucket.index(), buffer) if buffer.is_cpu and not buffer.is_sparse else None
        if room is None:
            work = dist.all_reduce(buffer, dist.ReduceOp.AVG, self._group, async_op=True)
        else:
            work = self._average(buffer, room)
        future: GradientFuture = work.get_future().then(_first)
        return future

    @shown("all_reduce", 0)
    def _average(self, buffer: Tensor, room: _Room) -> Work:
        mine = room.memory
        finish = None
        if buffer.untyped_storage().data_ptr() != room.storage.data_ptr():
            lent = mine.clone()
            mine.copy_(buffer)

            def finish() -> None:
                buffer.copy_(mine)
                mine.copy_(lent)

        return self._channel.run(
            "all_reduce", (mine.numel(),), mine, mine, [buffer], op="avg", in_place=0, finish=finish
        )

    def _room(self, index: int, buffer: Tensor) -> _Room | None:
        """The room of a bucket, if it is shared; all ranks get one or none."""
        size_bytes = buffer.nbytes
        if size_bytes < SHARED_FROM_BYTES or self._channel.size == 1:
            return None
        self._calls[index, size_bytes] += 1
        if self._calls[index, size_bytes] <= CALLS_MOVED:
            self._rooms.pop(index, None)
            self._move(index, buffer)
        return self._rooms.get(index)

    def _move(self, index: int, buffer: Tensor) -> None:
        try:
            memory = self._channel.empty(buffer.nbytes)
        except ResourceError as error:  # on all ranks
            _warn(index, str(error))
            return
        storage = buffer.untyped_storage()
        moved = torch.tensor(move(storage, memory, self._channel.size), dtype=torch.uint8)
        self._channel.run("all_reduce", (1,), moved, moved, [moved], op="min", in_place=0, waits=True)
        if moved:
            self._rooms[index] = _Room(memory.view(buffer.dtype), storage)
        else:
            _warn(index, f"a copy of {buffer.nbytes} bytes for each rank finds no room in /dev/shm for a moment")


def _first(done: torch.futures.Future[list[Tensor]]) -> Tensor:
    return done.value()[0]


def _warn(index: int, why: str) -> None:
    warnings.warn(f"bucket {index} stays in ordinary memory, and is copied to be averaged: {why}", stacklevel=2)
