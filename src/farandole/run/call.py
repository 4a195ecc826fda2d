"""Calls: what ranks must agree on, and the schedule and slot programs that carry it out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from farandole.algorithms import build
from farandole.collectives import collective
from farandole.errors import UsageError
from farandole.run.compile import compile_schedule
from farandole.schedule import Schedule
from farandole.slots import SlotProgram
from farandole.verify import verify_schedule
from farandole.verify.order import summing_orders


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Where the input of a call lies: ``offset`` bytes into the ``number``-th array that the ranks share.

    Equal parts of such an array, one for each rank, follow each other every ``stride`` bytes. ``in_place`` says that
    the output is written over the input.
    """

    number: int
    offset: int
    stride: int
    in_place: bool

    def __str__(self) -> str:
        return f"shared array {self.number}{f' + {self.offset} bytes' if self.offset else ''}" + (
            " in place" if self.in_place else ""
        )


@dataclass(frozen=True, slots=True)
class Call:
    """What ranks must agree on: one call of a collective. ``counts`` are the lengths of its blocks.

    ``algorithm`` is a name with its options, or a schedule. ``op`` is empty for collectives that do not
    reduce, ``dtype`` for those that move no data. ``memory`` is where the inputs lie, if all ranks can see them.
    """

    collective: str
    algorithm: str | Schedule
    counts: tuple[int, ...]
    dtype: str
    itemsize: int
    op: str
    root: int
    memory: SharedMemory | None = None

    def __str__(self) -> str:
        same = len(set(self.counts)) == 1
        shape = f"{len(self.counts)} x {self.counts[0]}" if same and len(self.counts) > 1 else _short(self.counts)
        parts = [f"{self.dtype}[{shape}]" if self.dtype else "", self.op, self.algorithm_name]
        if collective(self.collective).rooted:
            parts.append(f"root={self.root}")
        if self.memory is not None:
            parts.append(str(self.memory))
        return f"{self.collective}({', '.join(filter(None, parts))})"

    @property
    def algorithm_name(self) -> str:
        """The algorithm as text."""
        return self.algorithm if isinstance(self.algorithm, str) else self.algorithm.name or "a schedule"

    def fingerprint(self) -> int:
        """A number of 64 bits that ranks have in common if, and only if, they make the same call."""
        digest = hashlib.blake2b(f"{self} {self.counts} {self.itemsize}".encode(), digest_size=8)
        if isinstance(self.algorithm, Schedule):
            for name, column in sorted(self.algorithm.columns().items()):
                digest.update(name.encode() + column.tobytes())
        return int.from_bytes(digest.digest(), "little")


def check_order(call: Call, programs: tuple[SlotProgram, ...]) -> None:
    """Raise UsageError unless a call adds up in the order of the ranks, whatever its length."""
    ranks = len(programs)
    if not call.op or summing_orders(programs) <= {tuple(range(ranks)), 0}:
        return
    raise UsageError(
        f"{call}: this communicator is deterministic, and {call.algorithm_name} does not add up in the order of the"
        " ranks everywhere; leave the choice to auto, or take direct, naive or parameter_server",
        algorithm=call.algorithm_name,
    )


def _short(counts: Sequence[int]) -> str:
    shown = ",".join(map(str, counts[:6]))
    return f"{shown},..." if len(counts) > 6 else shown


@lru_cache(maxsize=128)
def compiled(
    collective_name: str, algorithm: str | Schedule, ranks: int, root: int
) -> tuple[Schedule, tuple[SlotProgram, ...]]:
    """The schedule of an algorithm and what it compiles to; a schedule of the user's is proven first."""
    if isinstance(algorithm, Schedule):
        _check_schedule(algorithm, collective_name, ranks, root)
        return algorithm, compile_schedule(algorithm)
    schedule = build(collective_name, algorithm, ranks, root)
    return schedule, compile_schedule(schedule)


def _check_schedule(schedule: Schedule, collective_name: str, ranks: int, root: int) -> None:
    """Raise UsageError unless a schedule is for this call, and ScheduleError unless it is right."""
    what = collective(collective_name)
    given = (schedule.collective, schedule.ranks, schedule.root if what.rooted else root)
    if given != (collective_name, ranks, root):
        raise UsageError(
            f"a schedule for {schedule.collective} on {schedule.ranks} ranks with root {schedule.root} cannot carry out"
            f" {collective_name} on {ranks} ranks with root {root}",
            expected=(collective_name, ranks, root),
            got=given,
        )
    verify_schedule(schedule).raise_if_wrong()
