"""Handles on other processes that never mean a different one: pidfds, one per process however many want it.

A pid may be given to a new process as soon as the old one is gone; a pidfd goes on meaning the old one, and polls as
readable once it has ended. A rank is in many communicators with the same peers, and descriptors are few (1,024 by
default), so handles are shared and counted.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from dataclasses import dataclass

NO_HANDLE = -1  # where the kernel has no pidfds (before Linux 5.3)


@dataclass(slots=True)
class _Handle:
    pid: int
    users: int = 1


_handles: dict[int, _Handle] = {}  # by descriptor
_lock = threading.RLock()  # a meeting that nobody holds is closed wherever the collector comes by


def watch(pid: int) -> int:
    """A pidfd for a process that is alive; the caller gives it back with ``release``, and never closes it.

    Returns NO_HANDLE where the kernel has none; raises ProcessLookupError where there is no such process.
    """
    with _lock:
        for descriptor, handle in list(_handles.items()):
            if handle.pid == pid and handle.users and not has_ended(descriptor):
                handle.users += 1
                return descriptor
        descriptor = _open(pid)
        if descriptor != NO_HANDLE:
            _handles[descriptor] = _Handle(pid)
        return descriptor


def release(descriptor: int) -> None:
    """Give back what ``watch`` returned."""
    if descriptor == NO_HANDLE:
        return
    with _lock:
        handle = _handles[descriptor]
        handle.users -= 1
        if handle.users == 0:
            del _handles[descriptor]
            os.close(descriptor)


def pid_of(descriptor: int) -> int:
    """The pid of what ``watch`` returned; 0 where that is unknown."""
    with _lock:
        handle = _handles.get(descriptor)
    return 0 if handle is None else handle.pid


def has_ended(descriptor: int, within_s: float = 0.0) -> bool:
    """Whether the process of a pidfd has ended, or does so within that time."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1000 * within_s))


def is_dying(pid: int, within_s: float) -> bool:
    """Whether a process that has just closed a socket has ended, or does so within that time.

    The kernel closes the descriptors of a process before anyone can see that it has ended.
    """
    try:
        descriptor = _open(pid)
    except ProcessLookupError:
        return True
    if descriptor == NO_HANDLE:
        return False
    try:
        return has_ended(descriptor, within_s)
    finally:
        os.close(descriptor)


def _open(pid: int) -> int:
    if not hasattr(os, "pidfd_open"):
        return NO_HANDLE
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a sandbox that does not know the call
            return NO_HANDLE
        raise
