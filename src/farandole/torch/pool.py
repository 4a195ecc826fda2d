"""Buffers that PyTorch asks a group for, in memory that its ranks share: those of FSDP2, say.

PyTorch makes such a buffer for one call and drops it. Here it is kept and given out again, once it has been dropped on
all ranks: they tell each other, since each may hold on to one for longer. All ranks ask for the same buffers in the
same order.

A buffer may be up to twice as long as what is asked for. What all buffers take is limited: when there would be more,
those that are not in use go first, and if that is not enough, ordinary memory is given out.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from farandole.errors import ResourceError
from farandole.run.arrays import Array
from farandole.run.shared import SHARED_FROM_BYTES
from farandole.torch.channel import Channel


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    array: Array

    def holders(self) -> int:
        """How many hold on to the array; as many as at first, if no tensor shows it."""
        return sys.getrefcount(self.array)


class Pool:
    """The buffers of one group."""

    def __init__(self, channel: Channel, limit_bytes: int) -> None:
        """``limit_bytes`` is the most that they take of this rank's memory."""
        self._channel = channel
        self._limit_bytes = limit_bytes
        self._blocks: list[_Block] = []
        self._unheld = 0

    @property
    def size_bytes(self) -> int:
        """What all buffers take of this rank's memory."""
        return sum(block.array.nbytes for block in self._blocks)

    def clear(self) -> None:
        """Keep no buffers; what tensors show of them stays until these are gone."""
        self._blocks = []

    def take(self, length: int, dtype: torch.dtype) -> Tensor:
        """A tensor of one dimension, with whatever values; shared if it is long enough and there is room."""
        needed = length * dtype.itemsize
        if needed < SHARED_FROM_BYTES or self._channel.size == 1:
            return torch.empty(length, dtype=dtype)
        free = self._free()
        fit = [block for block in free if needed <= block.array.nbytes <= 2 * needed]
        block = min(fit, key=lambda block: block.array.nbytes) if fit else self._make(needed, free)
        if block is None:
            return torch.empty(length, dtype=dtype)
        return torch.from_numpy(block.array)[:needed].view(dtype)

    def _free(self) -> list[_Block]:
        """The buffers that no rank uses."""
        if not self._blocks:
            return []
        free = torch.tensor([block.holders() == self._unheld for block in self._blocks], dtype=torch.uint8)
        self._channel.run("all_reduce", (len(free),), free, free, [free], op="min", in_place=0, waits=True)
        return [block for block, is_free in zip(self._blocks, free.tolist(), strict=True) if is_free]

    def _make(self, needed: int, free: list[_Block]) -> _Block | None:
        if self.size_bytes + needed > self._limit_bytes:
            self._blocks = [block for block in self._blocks if block not in free]
            if self.size_bytes + needed > self._limit_bytes:
                return None
        try:
            block = _Block(self._channel.empty_array(needed))
        except ResourceError as error:  # on all ranks
            warnings.warn(f"ordinary memory is given out instead of shared memory: {error}", stacklevel=2)
            return None
        self._unheld = block.holders()
        self._blocks.append(block)
        return block
