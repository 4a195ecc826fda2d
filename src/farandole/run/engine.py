"""The native engine for one communicator: compiles, binds and runs calls over the shared segment.

Everything that depends only on what is called, not on the data, is worked out once and kept as a plan.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from farandole import _core
from farandole.algorithms import build
from farandole.collectives import collective
from farandole.errors import (
    ClosedError,
    CommunicationError,
    MismatchError,
    PeerLostError,
    TimeLimitError,
    UsageError,
)
from farandole.layout import Layout, layout
from farandole.run.arrays import Array, address
from farandole.run.bind import bind, longest_chunk
from farandole.run.compile import compile_schedule
from farandole.run.meeting import Meeting
from farandole.schedule import Schedule
from farandole.slots import SlotProgram
from farandole.verify import verify_schedule

DEFAULT_SLOT_BYTES = 4 << 20
BATCH_SLICES = 2
PLANS_KEPT = 256

State = tuple[int, bool, str]

# How often to look at a counter that has not moved: with a pause in between, then giving up the core.
_ALONE = (2000, 400)
_CROWDED = (20, 4000)  # the rank waited for may need this very core
_BACKGROUND = (20, 20)  # and here the computation does

_MISMATCH, _LOST, _LATE, _INTERRUPTED, _CLOSED = 1, 2, 3, 4, 5


@dataclass(frozen=True, slots=True)
class Call:
    """What ranks must agree on: one call of a collective. ``counts`` are the lengths of its blocks.

    ``algorithm`` is a name with its options, or a schedule. ``op`` is empty for collectives that do not
    reduce, ``dtype`` for those that move no data.
    """

    collective: str
    algorithm: str | Schedule
    counts: tuple[int, ...]
    dtype: str
    itemsize: int
    op: str
    root: int

    def __str__(self) -> str:
        same = len(set(self.counts)) == 1
        shape = f"{len(self.counts)} x {self.counts[0]}" if same and len(self.counts) > 1 else _short(self.counts)
        parts = [f"{self.dtype}[{shape}]" if self.dtype else "", self.op, self.algorithm_name]
        if collective(self.collective).rooted:
            parts.append(f"root={self.root}")
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


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A call made ready: the engine's plan, where the data must lie, and what the schedule promises."""

    plan: _core.Plan
    layout: Layout
    schedule: Schedule
    algorithm: str
    input_bytes: int
    output_bytes: int


class Engine:
    """Runs calls for one rank of a communicator, over the segment of a meeting, which it keeps and closes."""

    def __init__(self, meeting: Meeting, slot_bytes: int) -> None:
        """Map the segment that the ranks share; each has ``slot_bytes`` of it."""
        self.rank = meeting.rank
        self.ranks = meeting.size
        self._meeting = meeting
        self._pids = meeting.pids
        self._plans: OrderedDict[Call, Planned] = OrderedDict()
        self._lock = threading.Lock()
        self._kept: list[tuple[_core.Work, object]] = []
        crowded = self.ranks > len(os.sched_getaffinity(0))
        self._runner = _core.Runner(
            fd=meeting.segment_fd,
            rank=self.rank,
            ranks=self.ranks,
            slot_bytes=slot_bytes,
            process_fds=meeting.pidfds,
            foreground=_CROWDED if crowded else _ALONE,
            background=_BACKGROUND,
            batch=BATCH_SLICES,
        )
        meeting.close_segment()

    def planned(self, call: Call) -> Planned:
        """The plan of ``call``, made now or taken from those kept."""
        planned = self._plans.get(call)
        if planned is not None:
            return planned
        schedule, programs = compiled(call.collective, call.algorithm, self.ranks, call.root)
        program = programs[self.rank]
        partial_itemsize = _core.partial_itemsize(call.dtype, call.itemsize) if call.op else call.itemsize
        where = layout(
            collective(call.collective),
            self.ranks,
            schedule.chunks,
            np.array(call.counts, np.int64),
            root=call.root,
            itemsize=call.itemsize,
            longest_chunk=longest_chunk(program, partial_itemsize, self._runner.set_bytes),
        )
        tables = bind(program, where, call.itemsize, partial_itemsize)
        plan = self._runner.plan(
            stages=tables.stages.tobytes(),
            steps=tables.steps.tobytes(),
            operands=tables.operands.tobytes(),
            waits=tables.waits.tobytes(),
            slices=where.slices,
            stride=where.stride,
            itemsize=call.itemsize,
            dtype=call.dtype,
            op="sum" if call.op == "avg" else call.op,
            divisor=self.ranks if call.op == "avg" else 1,
            fingerprint=call.fingerprint(),
            text=str(call),
        )
        planned = self._plans[call] = Planned(
            plan=plan,
            layout=where,
            schedule=schedule,
            algorithm=call.algorithm_name,
            input_bytes=where.input_length(self.rank) * call.itemsize,
            output_bytes=where.output_length(self.rank) * call.itemsize,
        )
        if len(self._plans) > PLANS_KEPT:
            self._plans.popitem(last=False)
        return planned

    def run(self, planned: Planned, input_address: int, output_address: int, timeout_s: float) -> None:
        """Carry out a planned call on memory of this process; CommunicationError where it fails."""
        failure, peer = self._runner.run(planned.plan, input_address, output_address, timeout_s)
        if failure:
            raise self.error(failure, peer, timeout_s)

    def run_arrays(self, planned: Planned, source: Array, target: Array, timeout_s: float) -> bool:
        """As ``run``, with no more ado; False, and nothing done, where the arrays are not plain memory."""
        failure, peer = self._runner.run_arrays(
            planned.plan, source, target, planned.input_bytes, planned.output_bytes, timeout_s
        )
        if failure > 0:
            raise self.error(failure, peer, timeout_s)
        return failure == 0

    def start(
        self,
        planned: Planned,
        input_address: int,
        output_address: int,
        timeout_s: float,
        keep: object,
        when_done: Callable[[], None] | None = None,
    ) -> _core.Work:
        """Carry out a planned call in the background; ``keep`` is kept alive until it is done."""
        work = self._runner.submit(planned.plan, input_address, output_address, timeout_s, when_done)
        self._keep_until_done(work, (planned, keep))
        return work

    def message(
        self, *, receives: bool, array: Array, peer: int, tag: int, timeout_s: float, waits: bool
    ) -> _core.Work:
        """Send a contiguous array to a rank, or receive one; ``waits`` says whether to return only when it is done."""
        memory = (address(array), array.nbytes, array.dtype.name)
        return self.message_at(
            *memory, receives=receives, peer=peer, tag=tag, timeout_s=timeout_s, waits=waits, keep=array
        )

    def message_at(
        self,
        at: int,
        size_bytes: int,
        dtype: str,
        *,
        receives: bool,
        peer: int,
        tag: int,
        timeout_s: float,
        waits: bool,
        keep: object,
    ) -> _core.Work:
        """As ``message``, for memory at an address; ``keep`` is kept alive until it is done."""
        work = self._runner.message(receives, at, size_bytes, dtype, peer, tag, timeout_s, waits, None)
        if not waits:
            self._keep_until_done(work, keep)
        return work

    def _keep_until_done(self, work: _core.Work, what: object) -> None:
        """Whoever started a call may forget its Work; the memory that it uses must outlive it all the same."""
        with self._lock:
            self._kept = [pair for pair in self._kept if not pair[0].done()]
            self._kept.append((work, what))

    def states(self) -> list[State]:
        """For each rank: the number of its call, whether it has closed, and the call in words.

        In a communicator that is broken, as it was when the first rank noticed.
        """
        return list(self._runner.states())

    def close(self, limit_s: float) -> None:
        """Let calls in flight end, for no longer than ``limit_s``; tell the others, and give back what it holds."""
        self._runner.close(limit_s)
        self._plans.clear()
        self._kept.clear()
        self._meeting.close()

    def error(self, failure: int, peer: int, timeout_s: float, what: str = "") -> CommunicationError:
        """What a failure that the extension has reported means, in words."""
        _, _, first = self._runner.broken()
        states = self.states()
        where = "; ".join(_grouped(states))
        facts: dict[str, Any] = {"rank": self.rank, "peer": peer, "first": first, "states": states}
        mine = f"rank {self.rank}, {what or f'call #{states[self.rank][0]} {states[self.rank][2]}'}"
        if first not in {-1, self.rank}:
            mine += f" (rank {first} noticed it first)"
        if failure == _MISMATCH:
            return MismatchError(
                f"{mine}: ranks made different calls: {where}. All ranks must make the same calls, in the same"
                " order, with the same lengths, dtype, op, root and algorithm",
                **facts,
            )
        if failure == _LOST:
            return PeerLostError(
                f"{mine}: rank {peer} (pid {self._meeting.pids[peer]}) has died; {where}",
                pid=self._meeting.pids[peer],
                **facts,
            )
        if failure == _LATE:
            return TimeLimitError(
                f"{mine}: rank {peer} did not arrive within {timeout_s:g} s; {where}. Give the call a longer timeout"
                f" if rank {peer} is only slow",
                timeout_s=timeout_s,
                **facts,
            )
        if failure == _CLOSED:
            return ClosedError(f"{mine}: rank {peer} has closed the communicator; {where}", **facts)
        return CommunicationError(f"{mine}: rank {first} was interrupted; {where}", **facts)


def _grouped(states: Sequence[State]) -> Iterator[str]:
    """Where the ranks are, in words; those that are in the same place together."""
    places: dict[str, list[int]] = {}
    for rank, (call, left, text) in enumerate(states):
        place = f"at #{call} {text}" if call else "at no call yet"
        places.setdefault(f"{place}, and closed" if left else place, []).append(rank)
    for place, ranks in places.items():
        one = len(ranks) == 1
        yield f"{'rank' if one else 'ranks'} {', '.join(map(str, ranks))} {'is' if one else 'are'} {place}"
