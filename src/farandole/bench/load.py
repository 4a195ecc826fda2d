"""What else the machine did during a measurement: how busy others kept the cores that this process may use.

The kernel counts how long each core was busy (with whatever, stolen time of a virtual machine included), and how long
this process and those that it has started and waited for were running. The difference is the others'.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE, _IO_WAIT, _STEAL = 3, 4, 7


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters at one moment, in seconds; ``busy_s`` is over all ``cores``, None where the system does not say."""

    at_s: float
    busy_s: float | None
    own_s: float
    cores: int


def reading() -> Reading:
    """The counters now."""
    cores = os.sched_getaffinity(0)
    own_s = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        own_s += usage.ru_utime + usage.ru_stime
    busy_s = None
    with contextlib.suppress(OSError):
        busy_s = busy(_STAT.read_text(encoding="ascii"), cores) / os.sysconf("SC_CLK_TCK")
    return Reading(time.monotonic(), busy_s, own_s, len(cores))


def busy(stat: str, cores: set[int]) -> int:
    r"""How many ticks the cores were busy, from the text of /proc/stat.

    >>> busy("cpu0 10 1 5 100 7 1 2 3 9 9\ncpu1 1 1 1 1 1 1 1 1 0 0", {0})
    22
    """
    total = 0
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cores:
            ticks = [int(field) for field in fields[: _STEAL + 1]]  # guests are part of what comes before
            total += sum(ticks) - ticks[_IDLE] - ticks[_IO_WAIT]
    return total


def others_share(before: Reading, after: Reading) -> float:
    """How much of the cores' time others used between two readings, from 0 to 1; 0 where that is not known."""
    room_s = (after.at_s - before.at_s) * after.cores
    if before.busy_s is None or after.busy_s is None or room_s <= 0:
        return 0.0
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return min(max(others_s / room_s, 0.0), 1.0)
