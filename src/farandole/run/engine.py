"""The native engine for one communicator: compiles, binds and runs calls over the shared segment.

Everything that depends only on what is called, not on the data, is worked out once and kept as a plan.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from farandole import _core
from farandole.collectives import collective
from farandole.errors import CommunicationError
from farandole.layout import Layout, layout
from farandole.run import endings
from farandole.run.arrays import Array, address
from farandole.run.bind import Bound, bind, longest_chunk
from farandole.run.call import Call, check_order, compiled
from farandole.run.dump import Dump
from farandole.run.failures import CLOSED, FORKED, State, failure_error, forked_error
from farandole.run.flight import LEFT, Flight, parse
from farandole.run.meeting import Known, Meeting
from farandole.run.roll import Roster
from farandole.run.share import shared
from farandole.schedule import Schedule
from farandole.slots import SlotProgram

DEFAULT_SLOT_BYTES = 1 << 20  # with more, what a rank has written has left its caches when others read it
BATCH_SLICES = 2
PLANS_KEPT = 256
STREAM_FROM_BYTES = 4 << 20  # an output longer than that is in no cache when the caller reads it

# How often to look at a counter that has not moved: with a pause in between; then giving up the core in between; and
# that for a rank that is many calls ahead, before it sleeps.
_ALONE = (100, 400, 400)
_CROWDED = (4, 1000, 0)  # the rank waited for may need this very core
_BACKGROUND = (20, 20, 20)  # and here the computation does

_GONE = {LEFT.index("closed"), LEFT.index("failed")}


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A call made ready: the engine's plan, where the data must lie, and what the schedule promises."""

    plan: _core.Plan
    layout: Layout
    schedule: Schedule
    algorithm: str
    call: Call
    program: SlotProgram
    input_bytes: int
    output_bytes: int


# A collective's name, algorithm and arguments that are no arrays; and two arrays: its input and where its result goes.
Asked = tuple[object, object, tuple[Hashable, ...], Array | None, Array | None]


class _Kept:
    """What a call in flight uses, and the call's Work, once it is known."""

    __slots__ = ("what", "work")

    def __init__(self, what: object) -> None:
        self.what = what
        self.work: _core.Work | None = None


class Engine:
    """Runs calls for one rank of a communicator, over the segment of a meeting, which it keeps and closes."""

    def __init__(
        self, meeting: Meeting, slot_bytes: int, *, deterministic: bool = False, far: bool | None = None
    ) -> None:
        """Map the segment that the ranks share; each has ``slot_bytes`` of it.

        If ``deterministic``, whatever does not add up in the order of the ranks is refused. ``far`` is whether the
        others' cores share no cache with this rank's; None to find out, again and again.
        """
        self._deterministic = deterministic
        self.rank = meeting.rank
        self.ranks = meeting.size
        self._meeting = meeting
        self._pids = meeting.pids
        self._plans: OrderedDict[Call, Planned] = OrderedDict()
        self._is_closed = False
        self._lock = threading.Lock()
        self._dump = Dump(self.rank)
        self._kept: list[_Kept] = []
        crowded = self.ranks > (meeting.cores or len(os.sched_getaffinity(0)))
        self._runner = _core.Runner(
            fd=meeting.segment_fd,
            rank=self.rank,
            ranks=self.ranks,
            slot_bytes=slot_bytes,
            process_fds=meeting.pidfds,
            foreground=_CROWDED if crowded else _ALONE,
            background=_BACKGROUND,
            batch=BATCH_SLICES,
            far=far,
            crowded=crowded,
        )
        self.repeat = self._runner.repeat
        meeting.unbind()
        meeting.keep_segment()
        _open.add(self)

    def __del__(self) -> None:
        """A communicator that is forgotten, with all its calls, is closed; what its calls use must not go before."""
        if hasattr(self, "_runner"):
            self.close(0)

    def planned(self, call: Call) -> Planned:
        """The plan of ``call``, made now or taken from those kept."""
        planned = self._plans.get(call)
        if planned is not None:
            return planned
        schedule, programs = compiled(call.collective, call.algorithm, self.ranks, call.root)
        if self._deterministic:
            check_order(call, programs)
        seen = None if call.memory is None else shared(schedule, programs, call.memory.in_place)
        program = (seen or programs)[self.rank]
        partial_itemsize = _partial_itemsize(call)
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
            peer_stride=call.memory.stride if seen and call.memory else 0,
            streams=where.output_length(self.rank) * call.itemsize >= STREAM_FROM_BYTES,
            set_bytes=tables.set_bytes,
            fingerprint=call.fingerprint(),
            text=str(call),
            size_bytes=sum(call.counts) * call.itemsize,
        )
        planned = self._plans[call] = Planned(
            plan=plan,
            layout=where,
            schedule=schedule,
            algorithm=call.algorithm_name,
            call=call,
            program=program,
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

    def run_traced(self, planned: Planned, input_address: int, output_address: int, timeout_s: float) -> bytes:
        """As ``run``; what this rank did when, packed as src/core/recording.hpp says."""
        (failure, peer), records = self._runner.run_traced(planned.plan, input_address, output_address, timeout_s)
        if failure:
            raise self.error(failure, peer, timeout_s)
        return records

    def records(self, planned: Planned) -> int:
        """How many records ``run_traced`` would give."""
        return self._runner.records(planned.plan)

    def tables(self, planned: Planned) -> Bound:
        """What the plan of a call was made from."""
        return bind(planned.program, planned.layout, planned.call.itemsize, _partial_itemsize(planned.call))

    def distances_ns(self) -> list[int]:
        """How many ns it takes to read a line of memory that each rank has just written; 0 where that is not known."""
        return list(self._runner.distances_ns())

    @property
    def writes_past_caches(self) -> bool:
        """Whether this rank now writes what others will read past the caches, because one of them is far away."""
        return self._runner.writes_past_caches()

    @property
    def last_algorithm(self) -> str:
        """The algorithm that the last call ran."""
        return self._runner.last_algorithm

    @last_algorithm.setter
    def last_algorithm(self, name: str) -> None:
        self._runner.last_algorithm = name

    def remember(self, asked: Asked, planned: Planned, timeout_s: float, *, reads: bool, result: Array | None) -> None:
        """Let ``repeat`` carry out a call as ``planned`` did, which took its input or not and returned ``result``."""
        dtype, shape = (None, ()) if result is None else (result.dtype, result.shape)
        self._runner.remember(*asked, planned.plan, reads, dtype, shape, timeout_s, planned.algorithm)

    def forget(self) -> None:
        """Let ``repeat`` carry out no call any more that it knows."""
        self._runner.forget()

    # Of this object's __init__: repeat(name, algorithm, more, source, target, timeout_s) carries out a call that is
    # remembered, and returns what it returned; or NotImplemented, and nothing is done. It raises _core.Failed, whose
    # arguments are those of `error`. It is the extension's own method: one more call would cost as much as all it does.

    def start(
        self,
        planned: Planned,
        input_address: int,
        output_address: int,
        timeout_s: float,
        keep: object,
        conclude: Callable[[], None] | None = None,
    ) -> _core.Work:
        """Carry out a planned call in the background; ``keep`` is kept alive until it is done."""
        with self._keeping((planned, keep)) as kept:
            work = kept.work = self._runner.submit(planned.plan, input_address, output_address, timeout_s, conclude)
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
        what = (receives, at, size_bytes, dtype, peer, tag, timeout_s, waits, None)
        if waits:
            return self._runner.message(*what)
        with self._keeping(keep) as kept:
            work = kept.work = self._runner.message(*what)
        return work

    @contextmanager
    def _keeping(self, what: object) -> Iterator[_Kept]:
        """Whoever starts a call may forget its Work; the memory that it uses must outlive it all the same.

        It is kept before the call begins: an interrupt may come as soon as it has begun, in place of its Work. What is
        kept without one goes when the engine is closed.
        """
        kept = _Kept(what)
        with self._lock:
            self._kept = [each for each in self._kept if each.work is None or not each.work.done()]
            self._kept.append(kept)
        try:
            yield kept
        except Exception:  # of the engine's: there is no call
            with self._lock:
                self._kept = [each for each in self._kept if each is not kept]
            raise

    def states(self) -> list[State]:
        """For each rank: the number of its call, how it has left (0: not), and the call in words.

        In a communicator that is broken, as it was when the first rank noticed.
        """
        return list(self._runner.states())

    def flight(self) -> Flight:
        """The flight recorder of all ranks as it is now."""
        return parse(self._runner.control(), self._runner.control(), _core.flight_clock())

    def known(self, members: Sequence[int], what: str, timeout_s: float) -> Known:
        """What is known of these ranks while they meet for ``what``: their processes, and whether one has left.

        ``timeout_s`` is how long calls wait for a late rank.
        """

        def trouble() -> CommunicationError | None:
            failure, peer, _ = self._runner.broken()
            if failure:
                return self.error(failure, peer, timeout_s, what)
            gone = [rank for rank in members if rank != self.rank and self._runner.left(rank)]
            # Whoever has closed may have done so because of one that failed, which is the better news.
            gone.sort(key=lambda rank: self._runner.ending(rank) == "")
            return self.error(CLOSED, gone[0], timeout_s, what) if gone else None

        return Known(tuple(self._meeting.pidfds[member] for member in members), trouble)

    def has_gone(self, rank: int) -> bool:
        """Whether a rank has closed, or has been ended by an exception; also if that was after a call had failed."""
        return self._runner.left(rank) in _GONE

    def leave_to_shrink(self) -> Roster:
        """Make no more calls, and end those in flight; who the ranks are, and which of them are gone.

        It can be used until the engine is closed.
        """
        self._runner.close(0, LEFT.index("shrunk"))
        return Roster(self.rank, self._pids, self._meeting.pidfds, self.has_gone)

    def close(self, limit_s: float, ending: str = "") -> None:
        """Let calls in flight end, for no longer than ``limit_s``; tell the others, and give back what it holds.

        ``ending`` is the name of the exception that ends this rank, if one does: then it has failed, not closed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        ending = ending or endings.unhandled()
        self._runner.close(limit_s, LEFT.index("failed" if ending else "closed"), ending)
        self._plans.clear()
        self._kept.clear()
        self._meeting.close()

    def error(self, failure: int, peer: int, timeout_s: float, what: str = "") -> CommunicationError:
        """What a failure that the extension has reported means, in words."""
        if failure == FORKED:
            return forked_error(self.rank, self._pids[self.rank], what)
        _, _, first = self._runner.broken()
        error = failure_error(
            failure,
            rank=self.rank,
            peer=peer,
            first=first,
            pids=self._pids,
            states=self.states(),
            timeout_s=timeout_s,
            what=what,
            ending=self._runner.ending(peer) if peer >= 0 else "",
        )
        return self._dump.write(error, self.flight)


def _partial_itemsize(call: Call) -> int:
    """Bytes of an element while it is a partial value."""
    return _core.partial_itemsize(call.dtype, call.itemsize) if call.op else call.itemsize


_open: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Calls may be in flight although their communicator is forgotten; the engine's threads end before Python does."""
    for engine in list(_open):
        engine.close(0)
