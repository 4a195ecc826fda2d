"""This machine, as far as it decides whether measurements are of it."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

_Text = Annotated[str, Meta(max_length=200)]


class Machine(msgspec.Struct, frozen=True):
    """A machine; ``cores`` are those that the ranks may use, all together."""

    cpu: _Text
    cores: Annotated[int, Meta(ge=1, lt=2**31)]
    kernel: _Text = ""


def this_machine() -> Machine:
    """The machine that this process runs on, with the cores that it may use."""
    return Machine(cpu_name(), cores_of([os.getpid()]), f"{platform.system()} {platform.release()}"[:200])


def cores_of(pids: Iterable[int]) -> int:
    """How many cores the processes may use, all together; those that have ended do not count.

    A launcher may have given each rank a core of its own, so no rank knows by itself.
    """
    cores: set[int] = set()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            cores |= os.sched_getaffinity(pid)
    return len(cores)


def cpu_name() -> str:
    """The model of the first CPU, or the kind of machine where the system does not say."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()[:200]
    return platform.machine()


def cpu_misfit(theirs: str, ours: str) -> str:
    """Why measurements on the CPU called ``theirs`` are not of this machine; empty where they are."""
    return "" if theirs == ours else f"it was measured on another CPU: {theirs}, not {ours}"


def cores_misfit(theirs: int, ours: int) -> str:
    """Why measurements on ``theirs`` cores do not count for ranks that share ``ours``; empty where they do."""
    return "" if theirs == ours else f"it was measured on {_cores(theirs)}, and the ranks here share {_cores(ours)}"


def _cores(count: int) -> str:
    return "one core" if count == 1 else f"{count} cores"
