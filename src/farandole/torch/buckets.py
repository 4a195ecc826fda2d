"""The buckets of DistributedDataParallel in memory that the ranks share, averaged in one pass.

The rules:

- DDP makes its buckets when it is made, and anew after the first step, or never. So every bucket is moved in the first
  step and in the second: all ranks make these together, whatever has become of the storages of each.
- Who cannot have its bucket moved tells the others, and none of them shares that bucket.
- A rank whose bucket is another one than that which was moved (one that has no more batches answers with zeros, under
  ``Join``) lends its shared memory to the call, and gets back what was there.
- DDP divides every gradient by the number of ranks before they are summed. A hook that averages spares it that pass
  over the memory.
"""
# Without postponed annotations: PyTorch compares those of a hook.

import warnings
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

STEPS_MOVED = 2
GradientFuture = torch.futures.Future[Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class _Room:
    """Where a bucket lies that was moved: its elements in the shared array, and the storage that shows them.

    ``step`` is the one in which it was moved; then there is no memory if it could not be.
    """

    step: int
    memory: Tensor | None
    storage: torch.UntypedStorage  # kept, so that no other one can have its address


class Buckets(Shown):
    """What averages the buckets of one model."""

    def __init__(self, group: dist.ProcessGroup, channel: Channel) -> None:
        """``channel`` is that of the group."""
        self._group = group
        self._channel = channel
        self._step = 0
        self._rooms: dict[int, _Room] = {}

    def average(self, bucket: dist.GradBucket) -> GradientFuture:
        """A communication hook: average one bucket over all ranks."""
        buffer = bucket.buffer()
        room = self._room(bucket.index(), buffer) if buffer.is_cpu and not buffer.is_sparse else None
        if room is None or room.memory is None:
            work = dist.all_reduce(buffer, dist.ReduceOp.AVG, self._group, async_op=True)
        else:
            work = self._average(buffer, room.memory, room.storage)
        future: GradientFuture = work.get_future().then(_first)
        return future

    @shown("all_reduce", 0)
    def _average(self, buffer: Tensor, mine: Tensor, moved: torch.UntypedStorage) -> Work:
        finish = None
        if buffer.untyped_storage().data_ptr() != moved.data_ptr():
            lent = mine.clone()
            mine.copy_(buffer)

            def finish() -> None:
                buffer.copy_(mine)
                mine.copy_(lent)

        return self._channel.run(
            "all_reduce", (mine.numel(),), mine, mine, [buffer], op="avg", in_place=0, finish=finish
        )

    def _room(self, index: int, buffer: Tensor) -> _Room | None:
        """The room of a bucket, if it is worth one; all ranks get one or none."""
        if index == 0:
            self._step = min(self._step + 1, STEPS_MOVED)  # DDP averages its buckets in the order of their numbers
        if buffer.nbytes < SHARED_FROM_BYTES or self._channel.size == 1:
            return None
        room = self._rooms.get(index)
        if room is None or room.step != self._step:
            room = self._rooms[index] = self._moved(index, buffer, room)
        return room

    def _moved(self, index: int, buffer: Tensor, before: _Room | None) -> _Room:
        storage = buffer.untyped_storage()
        nowhere = _Room(self._step, None, storage)
        try:
            memory = self._channel.empty(buffer.nbytes)
        except ResourceError as error:  # on all ranks
            _warn(index, str(error))
            return nowhere
        is_moved = before is not None and before.memory is not None and before.storage.data_ptr() == storage.data_ptr()
        done = torch.tensor(move(storage, memory, self._channel.size, again=is_moved), dtype=torch.uint8)
        self._channel.run("all_reduce", (1,), done, done, [done], op="min", in_place=0, waits=True)
        if not done:
            _warn(index, f"on some rank, PyTorch finds no room for {buffer.nbytes} more bytes in /dev/shm for a moment")
            return nowhere
        return _Room(self._step, memory.view(buffer.dtype), storage)


def _first(done: torch.futures.Future[list[Tensor]]) -> Tensor:
    return done.value()[0]


def _warn(index: int, why: str) -> None:
    warnings.warn(f"bucket {index} stays in ordinary memory, and is copied to be averaged: {why}", stacklevel=2)
