"""What the ranks of test_aside.py do, whose place on the cores is bad."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import farandole


def cores_after_one(tries: int, calls: int) -> tuple[list[int], bool]:
    """On which core this rank is after so many short calls since all were on one; whether it may still be on all."""
    allowed = os.sched_getaffinity(0)
    cores = []
    with farandole.init(timeout_s=40) as communicator:
        for _ in range(tries):
            os.sched_setaffinity(0, {min(allowed)})
            communicator.barrier()
            os.sched_setaffinity(0, allowed)
            for _ in range(calls):
                communicator.all_reduce(np.ones(2, np.float32))
            cores.append(_core())
    return cores, os.sched_getaffinity(0) == allowed


def cores_after_uneven(tries: int, calls: int) -> tuple[list[int], bool]:
    """On which of two cores this rank of four is after so many short calls since three of them were on one.

    And whether it may still be on both.
    """
    two = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, two)  # before the ranks meet: they know that they are more than the cores
    cores = []
    with farandole.init(timeout_s=40) as communicator:
        for _ in range(tries):
            os.sched_setaffinity(0, {two[communicator.rank == 0]})
            communicator.barrier()
            os.sched_setaffinity(0, two)
            for _ in range(calls):
                communicator.all_reduce(np.ones(2, np.float32))
            cores.append(_core())
    return cores, os.sched_getaffinity(0) == set(two)


def sleeps_beside_a_busy_program(calls: int, knows: bool) -> int:
    """How often this rank has slept in so many calls, while a program computes on the core that all ranks are on.

    If it ``knows`` from the beginning that there is one core, a time slice that is gone may have been other ranks'.
    """
    one = {min(os.sched_getaffinity(0))}
    if knows:
        os.sched_setaffinity(0, one)
    with farandole.init(timeout_s=40) as communicator:
        os.sched_setaffinity(0, one)
        with _busy_program() if communicator.rank == 0 else contextlib.nullcontext():
            communicator.barrier()
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
            for _ in range(calls):
                communicator.all_reduce(np.ones(2, np.float32))
            return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before


@contextlib.contextmanager
def _busy_program() -> Iterator[None]:
    """A process that computes on the cores that this one may be on."""
    code = "print('on', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"on\n"
            yield
        finally:
            program.kill()


def _core() -> int:
    """The core that this process ran on last."""
    after_name = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(after_name[36])
