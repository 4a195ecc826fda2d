"""Moving what a PyTorch storage holds into memory that the ranks share, while everything that shows it stays valid.

PyTorch itself can move a storage in place, to a mapping of its own that is whole pages long. Over these pages the
memory is mapped that the ranks share: one is then the other. When PyTorch gives the storage back, it unmaps the pages,
whatever lies there.

What has taken the address of the storage before (a NumPy array that shows it, say) shows nothing any more. So this is
for memory that nobody has taken the address of, such as the buckets of DistributedDataParallel.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

import torch
from torch import Tensor

from farandole.run.segment import SPARE_BYTES

_MAYMOVE, _FIXED = 1, 2
_REMOVE, _DOFORK = 9, 11  # of madvise, which Python has for mappings of its own only
_PYTORCHS = "/dev/shm"  # noqa: S108  # where PyTorch makes its mapping


def move(storage: torch.UntypedStorage, memory: Tensor, ranks: int, *, again: bool) -> bool:
    """Move a storage to ``memory``, which begins a shared array and is as many bytes long; whether that was possible.

    ``ranks`` are those that move one at the same time, each of which needs room for a copy in ``/dev/shm`` meanwhile.
    ``again`` says that the storage has been moved before.
    """
    size_bytes, begin = storage.nbytes(), memory.data_ptr()
    if size_bytes != memory.nbytes:
        return False
    if not again:
        if storage.is_shared() or not _has_room(ranks * size_bytes):
            return False
        try:
            storage.share_memory_()
        except RuntimeError:
            return False
    at = storage.data_ptr()
    if at % mmap.PAGESIZE or begin % mmap.PAGESIZE:
        return False
    libc = ctypes.CDLL(None)
    length = ctypes.c_size_t(-(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE)
    pages = ctypes.c_void_p(at)
    ctypes.memmove(begin, at, size_bytes)
    if not again:
        libc.madvise(pages, length, _REMOVE)  # else PyTorch's file, which it keeps, would keep its memory
    libc.mremap.restype = ctypes.c_void_p
    # Of a shared mapping, nothing is moved, but mapped a second time.
    mapped = libc.mremap(ctypes.c_void_p(begin), ctypes.c_size_t(0), length, _MAYMOVE | _FIXED, pages)
    if mapped != at:
        ctypes.memmove(at, begin, size_bytes)
        return False
    libc.madvise(pages, length, _DOFORK)
    return True


def _has_room(needed_bytes: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        found = os.statvfs(_PYTORCHS)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= needed_bytes + SPARE_BYTES
