"""Arrays that lie in memory shared by the ranks of a communicator, so that others read them where they are.

An array is made by all ranks together and is as long on each; the parts of all ranks follow each other in one segment,
which every rank maps. What is at the same offset of every rank's part can be the input of one call. The memory is
given back by each rank when the last of its arrays that show it is gone; what others hold stays.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable

import numpy as np

from farandole.run.arrays import Array, address
from farandole.run.call import SharedMemory
from farandole.run.meeting import Meeting

SHARED_FROM_BYTES = 128 << 10  # a call on less ends sooner with a copy than with a wait for all readers

SHARING = frozenset({"all_gather", "all_reduce", "all_to_all", "reduce_scatter"})  # where every rank has an input

Meet = Callable[[int, str], Meeting]  # bytes, name


class SharedArrays:
    """The shared arrays of one rank of a communicator."""

    def __init__(self, meet: Meet | None) -> None:
        """``meet`` brings all ranks together over a new segment of so many bytes; None in a world of one rank."""
        self._meet = meet
        self._made = 0
        self.known: dict[int, tuple[int, int]] = {}  # those in use, by number: where this rank's part begins, its bytes

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """A new array; every rank calls this with the same arguments."""
        length = int(np.prod(shape, dtype=np.int64))
        size_bytes = length * dtype.itemsize
        if self._meet is None or size_bytes == 0:
            return np.empty(shape, dtype)
        self._made += 1
        number, stride = self._made, -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._meet(stride, f"array {number}") as meeting:
            memory = mmap.mmap(meeting.segment_fd, meeting.segment_bytes)
            memory.madvise(mmap.MADV_DONTFORK)
            flat = np.frombuffer(memory, dtype, length, offset=meeting.rank * stride)
        self.known[number] = (address(flat), stride)
        weakref.finalize(flat, self.known.pop, number, None)
        return flat.reshape(shape)

    def find(self, source: Array | None, target: Array | None) -> SharedMemory | None:
        """Where in a shared array the source lies; None where it does not, or the target overlaps it otherwise."""
        if not self.known or source is None or not source.flags.c_contiguous:
            return None
        place = None if target is None or not np.may_share_memory(source, target) else address(target)
        return self.at(address(source), source.nbytes, place)

    def at(
        self, begin: int, size_bytes: int, target: int | None, in_place: int | None = 0, *, is_part: bool = False
    ) -> SharedMemory | None:
        """As ``find``, for a source at an address; ``target`` is where one that overlaps it begins, else None.

        The call is in place if that is ``in_place`` bytes from the source's begin. ``is_part`` says that such a source
        is a part of its target, which all ranks have at the same offset: each rank's source is one part further on.
        """
        for number, (start, stride) in self.known.items():
            if start <= begin and begin + size_bytes <= start + stride:
                if target is None:
                    return SharedMemory(number, begin - start, stride, in_place=False)
                if in_place is None or target - begin != in_place:
                    return None
                if is_part:
                    return SharedMemory(number, target - start, stride + size_bytes, in_place=True)
                return SharedMemory(number, begin - start, stride, in_place=True)
        return None
