"""Buffers that PyTorch asks a group for, in memory that its ranks share: those of FSDP2, say.

PyTorch makes such a buffer for one call and drops it. Here it is kept and given out again, once it has been dropped on
all ranks: they tell each other, since each may hold on to one for longer. All ranks ask for the same buffers in the
same order, and must come to the same answers.

To wait for each other's word costs more than shared memory gains. So they tell each other in the background, and go by
what they have heard: a buffer that nobody held then is held by nobody until it is given out. There is one buffer more
of each length for that.

A buffer may be up to twice as long as what is asked for. What all buffers take is limited: when there would be more,
they do wait, those that are not in use go, and if that is not enough, ordinary memory is given out.
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
from farandole.torch.work import Work


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    array: Array

    def holders(self) -> int:
        """How many hold on to the array; as many as at first, if no tensor shows it."""
        return sys.getrefcount(self.array)


@dataclass(frozen=True, slots=True, eq=False)
class _Roll:
    """The buffers that there were at some time, and which of them nobody held, once the work is done."""

    blocks: list[_Block]
    is_free: Tensor
    work: Work


class Pool:
    """The buffers of one group."""

    def __init__(self, channel: Channel, limit_bytes: int) -> None:
        """``limit_bytes`` is the most that they take of this rank's memory."""
        self._channel = channel
        self._limit_bytes = limit_bytes
        self._blocks: list[_Block] = []
        self._free: list[_Block] = []  # of which all ranks know that no rank holds them
        self._roll: _Roll | None = None
        self._given: set[_Block] = set()  # since the roll was called
        self._unheld = 0

    @property
    def size_bytes(self) -> int:
        """What all buffers take of this rank's memory."""
        return sum(block.array.nbytes for block in self._blocks)

    def clear(self) -> None:
        """Keep no buffers; what tensors show of them stays until these are gone."""
        self._blocks, self._free, self._roll = [], [], None

    def take(self, length: int, dtype: torch.dtype) -> Tensor:
        """A tensor of one dimension, with whatever values; shared if it is long enough and there is room."""
        needed = length * dtype.itemsize
        if needed < SHARED_FROM_BYTES or self._channel.size == 1:
            return torch.empty(length, dtype=dtype)
        block = self._fitting(needed)
        if block is None:
            self._hear()
            block = self._fitting(needed) or self._make(needed)
        tensor = None if block is None else self._give(block)[:needed].view(dtype)
        if self._roll is None and self._blocks:
            self._roll = self._call()
        return torch.empty(length, dtype=dtype) if tensor is None else tensor

    def _fitting(self, needed: int) -> _Block | None:
        """The shortest buffer that is free and long enough, but not too long."""
        fit = [block for block in self._free if needed <= block.array.nbytes <= 2 * needed]
        return min(fit, key=lambda block: block.array.nbytes, default=None)

    def _give(self, block: _Block) -> Tensor:
        self._given.add(block)
        self._free = [other for other in self._free if other is not block]
        return torch.from_numpy(block.array)

    def _call(self) -> _Roll:
        """Begin to tell each other."""
        self._given = set()
        blocks = list(self._blocks)
        is_free = torch.tensor([block.holders() == self._unheld for block in blocks], dtype=torch.uint8)
        work = self._channel.run("all_reduce", (len(blocks),), is_free, is_free, [is_free], op="min", in_place=0)
        return _Roll(blocks, is_free, work)

    def _hear(self) -> None:
        """Learn what nobody held when the roll was called, nor has got since."""
        if self._roll is None:
            return
        roll, self._roll = self._roll, None
        roll.work.wait()
        heard = zip(roll.blocks, roll.is_free.tolist(), strict=True)
        self._free = [block for block, is_free in heard if is_free and block not in self._given]

    def _make(self, needed: int) -> _Block | None:
        if needed > self._limit_bytes:
            return None
        if self.size_bytes + needed > self._limit_bytes:
            self._roll = self._call()
            self._hear()
            if (block := self._fitting(needed)) is not None:
                return block
            self._blocks, self._free = [block for block in self._blocks if block not in self._free], []
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
