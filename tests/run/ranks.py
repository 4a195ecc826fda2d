"""What the ranks of these tests do, each in a process of its own; started by ``spawn`` with this file's path."""

from __future__ import annotations

import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from farandole.errors import WorldSizeError
from farandole.run.environment import world
from farandole.run.rendezvous import meet


def my_rank() -> int:
    """This process's rank."""
    found = world(os.environ)
    assert found is not None
    return found.rank


def echo(value: Any) -> list[Any]:
    """What came, and where."""
    return [my_rank(), value]


def tell(count: int, progress: Callable[[Any], None]) -> str:
    """Report progress."""
    for step in range(count):
        progress({"step": step, "rank": my_rank()})
    return "told"


def share(segment_bytes: int) -> list[int]:
    """Write own rank + 1 into the segment, wait for all others' and return what stands there."""
    found = world(os.environ)
    assert found is not None
    with (
        meet(found.rank, found.size, found.key, 30, segment_bytes) as meeting,
        mmap.mmap(meeting.segment_fd, segment_bytes) as memory,
    ):
        memory[found.rank] = found.rank + 1
        while 0 in memory[: found.size]:
            os.sched_yield()
        # Nobody unmaps before everyone has seen everything.
        memory[found.size + found.rank] = 1
        while 0 in memory[found.size : 2 * found.size]:
            os.sched_yield()
        return list(memory[: found.size])


def fail(rank: int, how: str) -> None:
    """One rank fails, the others wait."""
    sys.stderr.write(f"rank {my_rank()} was here\n")
    sys.stderr.flush()
    if my_rank() == rank:
        if how == "ours":
            raise WorldSizeError("five is right out", expected=3, got=5)
        if how == "exit":
            sys.exit("nothing to do")
        if how == "signal":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "silent":
            os._exit(0)
        raise ZeroDivisionError("of rank and size")
    signal.pause()


def fail_and_go_on(rank: int) -> int:
    """One rank is killed, the others return."""
    if my_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return my_rank()


def unserialisable() -> object:
    """Return what JSON cannot hold."""
    return object()


def wait_for_ever() -> None:
    """Never return."""
    while True:
        time.sleep(60)
