"""The memory that the ranks of one host share: made, reserved and checked before anyone touches it.

- It is a memfd: it has no name in any file system, so nothing stays behind however the ranks end, and a container's
  small /dev/shm does not matter.
- Its size is sealed. No rank can shrink it under another's feet, which would be a SIGBUS.
- Every page is reserved before the ranks start. Each rank reserves its own share, so that on a machine with several
  memory nodes a rank's share lies near it, and each is charged to the cgroup of the rank that has it.
- Room is looked for first, since asking for more memory than there is ends in the OOM killer, not in an error.
  Other programs may take memory in between; reserving piece by piece, with a look before each, keeps that gap small.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource

from farandole.errors import RendezvousError, ResourceError
from farandole.run.limits import Limit, for_mapping, for_shared_memory
from farandole.units import format_size

SPARE_BYTES = 16 << 20  # left to the processes themselves, for page tables and the like
_PIECE_BYTES = 64 << 20
_MFD_NOEXEC_SEAL = 0x8  # Linux 6.3; Python names it from 3.13 on
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_SHORT_OF_MEMORY = (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG)


def create(size_bytes: int, name: str) -> int:
    """A descriptor of a new, sealed segment, not yet reserved; ``name`` is seen in /proc/PID/maps.

    Raises ResourceError, with ``needed`` and ``available`` bytes, where there is too little memory for it.
    """
    check_room(size_bytes, for_shared_memory() + for_mapping())
    descriptor = _memfd(name)
    try:
        os.ftruncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        os.close(descriptor)
        raise _refused(error, size_bytes) from error
    return descriptor


def reserve_share(descriptor: int, size_bytes: int, rank: int, size: int) -> None:
    """Reserve the memory of one rank's share of the segment: the ``rank``-th of ``size`` equal runs of pages."""
    page = resource.getpagesize()
    pages = -(-size_bytes // page)
    start, end = (min(pages * r // size * page, size_bytes) for r in (rank, rank + 1))
    if rank == size - 1:
        end = size_bytes
    for at in range(start, end, _PIECE_BYTES):
        check_room(end - at, for_shared_memory())
        try:
            os.posix_fallocate(descriptor, at, min(_PIECE_BYTES, end - at))
        except OSError as error:
            raise _refused(error, end - at) from error


def check(descriptor: int, size_bytes: int) -> None:
    """Raise RendezvousError unless this is a segment as ``create`` makes it, of that size."""
    got_bytes, sealed = 0, False
    if descriptor >= 0:
        got_bytes = os.fstat(descriptor).st_size
        with contextlib.suppress(OSError):  # what is no memfd has no seals
            sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    if not sealed or got_bytes != size_bytes:
        raise RendezvousError(
            f"the shared segment that was received has {got_bytes} bytes and is {'' if sealed else 'not '}sealed; "
            f"it must have {size_bytes} and be sealed",
            expected=size_bytes,
            got=got_bytes,
        )
    check_room(size_bytes, for_mapping())


def check_room(needed_bytes: int, limits: list[Limit]) -> None:
    """Raise ResourceError unless all ``limits`` leave room for that many bytes, and some to spare."""
    for limit in sorted(limits, key=lambda limit: limit.available_bytes):
        if needed_bytes + SPARE_BYTES > limit.available_bytes:
            raise ResourceError(
                f"the memory that the ranks share needs {_spell(needed_bytes)} more, with {_spell(SPARE_BYTES)} to "
                f"spare for the processes themselves, and only {_spell(limit.available_bytes)} are left of "
                f"{limit.what}; make it smaller, or raise the limit",
                needed=needed_bytes,
                available=limit.available_bytes,
                limit=limit.what,
            )


def _memfd(name: str) -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        with contextlib.suppress(OSError):  # a kernel that does not know the flag refuses it
            return os.memfd_create(name, flags | _MFD_NOEXEC_SEAL)
        return os.memfd_create(name, flags)
    except OSError as error:
        raise _refused(error, 0) from error


def _refused(error: OSError, needed_bytes: int) -> ResourceError:
    if error.errno in _SHORT_OF_MEMORY:
        available = min((limit.available_bytes for limit in for_shared_memory()), default=0)
        return ResourceError(
            f"the system has no {_spell(needed_bytes)} of shared memory left ({error.strerror}; {_spell(available)} "
            "seemed to be free); make the segment smaller",
            needed=needed_bytes,
            available=available,
            limit=error.strerror,
        )
    return ResourceError(
        f"the system refused shared memory: {error.strerror}", needed=needed_bytes, limit=error.strerror
    )


def _spell(size_bytes: int) -> str:
    """A size to the megabyte, where it has many of them."""
    return format_size(size_bytes if size_bytes < 100 << 20 else size_bytes >> 20 << 20)
