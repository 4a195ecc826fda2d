"""The communicator: the collectives as methods, on NumPy arrays, for the ranks of one host.

All ranks make the same calls in the same order. A failure of a collective raises on every rank and leaves
the communicator broken: close it and make a new one.

Arrays may have any shape and strides; what is shared out or put together by rank is cut along the first
axis. Every method takes ``algorithm``, which is ``auto`` or ``name:option=value,...`` as on the command
line, or a schedule of your own (which is proven first), and ``timeout_s``, the time after which a rank that
does not come is an error. ``communicator.background`` has the same methods, which return at once.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Hashable, Sequence
from types import TracebackType
from typing import cast

import numpy as np
from numpy.typing import DTypeLike

from farandole._core import Failed
from farandole.errors import ClosedError, MismatchError, UsageError
from farandole.run import messages, requests
from farandole.run.arrays import Array, as_rows, check_array, check_counts, check_rows
from farandole.run.background import Background
from farandole.run.choices import Choices, Explanation
from farandole.run.endings import name_of
from farandole.run.engine import Engine
from farandole.run.executor import AUTO, Choice, Executor
from farandole.run.meeting import Known
from farandole.run.parts import MakePart, part_of
from farandole.run.recording import Recording
from farandole.run.requests import Request
from farandole.run.shared import SharedArrays
from farandole.run.shrink import shrunk

_DRAIN_S = 5.0
_SHRINK_S = 30.0


class Communicator:
    """The ranks of one job, made by :func:`farandole.init`."""

    def __init__(self, executor: Executor, make_part: MakePart, key: str) -> None:
        """Use :func:`farandole.init`. ``make_part`` makes a communicator of some ranks; all ranks know ``key``."""
        self._place = executor.place
        self._executor = executor
        self._make_part = make_part
        self._key = key
        self._splits = 0
        self._parent_ranks = tuple(range(executor.place.size))
        self._state = "open"
        _open.add(self)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ending = name_of(kind, error)
        self._close(0 if ending else _DRAIN_S, ending)

    def __repr__(self) -> str:
        return f"<farandole.Communicator rank {self.rank} of {self.size}, {self._state}>"

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        return self._place.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._place.size

    @property
    def parent_ranks(self) -> tuple[int, ...]:
        """Which rank each one was, by rank, in the communicator that this one was split off or shrunk from."""
        return self._parent_ranks

    @property
    def last_algorithm(self) -> str:
        """The algorithm that the last collective ran, with its options; empty before the first."""
        return self._executor.last_algorithm

    def distances_ns(self) -> list[int]:
        """How many ns this rank's core takes to read a line of memory that each other rank has just written.

        By rank, in the median of the last calls in which that was found out; 0 where it is not known. Cores that share
        a cache need some 30 ns. Where a rank takes more than 70, what others will read is written past the caches.
        """
        engine = self._executor.engine
        return [0] * self.size if engine is None else engine.distances_ns()

    @property
    def choices(self) -> Choices:
        """Which algorithms ``auto`` stands for, the same on all ranks."""
        return self._executor.choices

    @property
    def engine(self) -> Engine | None:
        """What carries out the calls, for those who bring their own memory; None in a world of one rank."""
        return self._executor.engine

    @property
    def shared(self) -> SharedArrays:
        """The arrays that :meth:`empty` has made, for those who bring their own memory."""
        return self._executor.shared

    @property
    def background(self) -> Background:
        """The same methods, which return a :class:`~farandole.run.work.Work` at once."""
        return Background(self._executor, self._check_open)

    def explain(self, collective: str, size_bytes: int) -> Explanation:
        """Which algorithm a call takes that asks for none, and why.

        ``size_bytes`` is the largest buffer of a rank. Raises UnknownNameError, or UsageError for a size that is none.
        """
        return self.choices.explain(collective, size_bytes)

    def recording(self) -> Recording:
        """What all ranks do when, in the calls that are made while it is open; see Recording.

        ``with communicator.recording() as recording: ...``, then ``recording.gather()`` has a trace of each call.
        """
        return Recording(self._executor, self.all_gather)

    def close(self, drain_s: float = _DRAIN_S) -> None:
        """Leave; the other ranks get an error if they still expect this one. Closing twice is harmless.

        Calls in flight may end first, if that takes no longer than ``drain_s``.
        """
        self._close(drain_s)

    def _close(self, drain_s: float, ending: str = "") -> None:
        if self._state not in {"open", "shrinking"}:
            return
        self._state = "closed"
        _open.discard(self)
        self._executor.close(drain_s, ending)

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> Array:
        """A new array in memory that all ranks see; every rank calls this with the same arguments.

        Where it, or the same part of it on every rank, is the input of an all_reduce, reduce_scatter, all_gather or
        all_to_all, other ranks read it where it is, instead of a copy. Such a call ends when nobody reads it any more.
        All ranks must then give a part of the same shared array: anything else is another call, and an error. The
        memory is given back when the array is gone; the communicator may be closed before.

        Raises MismatchError where ranks ask for different sizes, and ResourceError where there is too little memory.
        """
        self._check_open("empty")
        lengths, kind = (shape,) if isinstance(shape, int) else tuple(shape), np.dtype(dtype)
        # A rank that makes another call instead must be noticed at once, and not when the time to meet is up.
        asked = self.all_gather(np.array([kind.itemsize * int(np.prod(lengths, dtype=np.int64))])).tolist()
        if len(set(asked)) > 1:
            raise MismatchError(
                f"rank {self.rank}, empty: ranks ask for arrays of different sizes, of "
                f"{', '.join(map(str, asked))} bytes by rank; all must make the same array",
                rank=self.rank,
                got=asked,
            )
        return self._executor.shared.empty(lengths, kind)

    def all_reduce(
        self,
        array: Array,
        op: str = "sum",
        *,
        scale: float | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array:
        """Combine the arrays of all ranks element by element; every rank gets the result.

        In place, or into ``out`` of the same shape. Returns the array that holds the result. With ``scale``,
        each rank's array is multiplied by its own factor first.
        """
        what = (array, op, scale, out)
        target = array if out is None else out
        return _array(self._run(requests.all_reduce, what, array, target, algorithm, timeout_s, (op, scale)))

    def reduce(
        self,
        array: Array,
        root: int = 0,
        op: str = "sum",
        *,
        scale: float | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array | None:
        """Combine the arrays of all ranks; the root gets the result, in place or in ``out``; others get None."""
        what = (array, root, op, scale, out)
        target = array if out is None else out
        return self._run(requests.reduce, what, array, target, algorithm, timeout_s, (root, op, scale))

    def broadcast(
        self, array: Array, root: int = 0, *, algorithm: Choice = AUTO, timeout_s: float | None = None
    ) -> Array:
        """Copy the root's array into that of every other rank, which has the same shape and dtype."""
        self._run(requests.broadcast, (array, root), array, array, algorithm, timeout_s, (root,))
        return array

    def reduce_scatter(
        self,
        array: Array,
        op: str = "sum",
        *,
        scale: float | None = None,
        counts: Sequence[int] | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array:
        """Combine the arrays of all ranks; rank r gets the r-th part of the result.

        ``counts`` are the rows of each part; without it, they are as even as can be.
        """
        what = (array, op, scale, counts, out)
        more = (op, scale, None if counts is None else tuple(counts))
        return _array(self._run(requests.reduce_scatter, what, array, out, algorithm, timeout_s, more))

    def all_gather(
        self,
        array: Array,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array:
        """Put the arrays of all ranks one after another, along the first axis; every rank gets the whole.

        Where ranks give different numbers of rows, every rank passes them all as ``counts``.
        """
        more = () if counts is None else tuple(counts)
        return _array(self._run(requests.all_gather, (array, counts, out), array, out, algorithm, timeout_s, more))

    def gather(
        self,
        array: Array,
        root: int = 0,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array | None:
        """As all_gather, but only the root gets the whole; the others get None."""
        more = (root, None if counts is None else tuple(counts))
        return self._run(requests.gather, (array, root, counts, out), array, out, algorithm, timeout_s, more)

    def scatter(
        self,
        array: Array | None,
        root: int = 0,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array:
        """Share out the root's array: rank r gets the r-th part of its rows.

        The other ranks pass None for ``array`` and give ``out``, which says what they expect. Without
        ``counts`` all parts are equal, so the root's rows must be a multiple of the ranks.
        """
        more = (root, None if counts is None else tuple(counts))
        return _array(self._run(requests.scatter, (array, root, counts, out), array, out, algorithm, timeout_s, more))

    def all_to_all(
        self,
        array: Array,
        *,
        send_counts: Sequence[int] | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array:
        """Rank r's d-th part becomes rank d's r-th part.

        ``send_counts`` are the rows for each rank, given by all ranks or by none (they are exchanged first);
        without it, parts are as even as can be, and every rank must have the same number of rows.
        """
        table = self._exchanged(array, send_counts, timeout_s)
        more = () if table is None else (table.tobytes(),)
        return _array(self._run(requests.all_to_all, (array, table, out), array, out, algorithm, timeout_s, more))

    def barrier(self, *, algorithm: Choice = AUTO, timeout_s: float | None = None) -> None:
        """Return when every rank has called it."""
        self._run(requests.barrier, (), None, None, algorithm, timeout_s, ())

    def send(self, array: Array, to: int, tag: int = 0, *, timeout_s: float | None = None) -> None:
        """Send an array to one rank; returns when the array may be used again."""
        self._check_open("send")
        messages.send(self._executor, array, to, tag, timeout_s, waits=True).wait()

    def receive(self, array: Array, source: int | None = None, tag: int = 0, *, timeout_s: float | None = None) -> int:
        """Fill an array with what ``source`` (None: any rank) sends with that tag; the sender's rank.

        LengthError or UnsupportedError where the message has another length or dtype than the array.
        """
        self._check_open("receive")
        return messages.receive(self._executor, array, source, tag, timeout_s, waits=True).wait()

    def split(self, color: int | None, key: int | None = None) -> Communicator | None:
        """Part the ranks: those with the same color get a communicator of their own, ordered by key, then rank.

        Every rank calls it. With color None a rank gets none, and None is returned. PeerLostError where one dies
        meanwhile.
        """
        if color is not None and color < 0:
            raise UsageError(f"a color is 0 or more, or None, not {color}", got=color)
        mine = (-1 if color is None else color, self.rank if key is None else key)
        table = self.all_gather(np.array([mine], np.int64)).tolist()
        self._splits += 1
        if color is None:
            return None
        members = [rank for _, rank in sorted((k, rank) for rank, (c, k) in enumerate(table) if c == color)]
        name = f"split {self._splits} {color}"
        part = part_of(self._executor.engine, members, self.rank, name, self._executor.timeout_s, self._make_part)
        part._parent_ranks = tuple(members)  # noqa: SLF001
        return part

    def shrink(self, *, timeout_s: float = _SHRINK_S) -> Communicator:
        """A communicator of the ranks that are left, for going on after a PeerLostError; this one can no more be used.

        Every rank that is left calls it. They are numbered anew, in their old order: ``parent_ranks`` of the new one
        are their old numbers. Whoever has died or closed this communicator is left out; if one more dies meanwhile,
        the others do without it. Ranks that are in a call of this communicator get a ClosedError, and can then come.

        Raises RendezvousError where ranks that are alive have not come within ``timeout_s`` seconds; it may be called
        again then.
        """
        if self._state not in {"open", "shrinking"}:
            raise ClosedError(f"shrink: this communicator is {self._state}", state=self._state)
        self._state = "shrinking"
        engine = self._executor.engine
        if engine is None:
            ranks: tuple[int, ...] = (0,)
            part = self._make_part(0, 1, "", known=Known())
        else:
            part, ranks = shrunk(engine.leave_to_shrink(), f"{self._key} shrink", self._make_part, timeout_s)
        part._parent_ranks = ranks  # noqa: SLF001
        self._close(0)
        self._state = "shrunk"
        return part

    def _exchanged(self, array: Array, send_counts: Sequence[int] | None, timeout_s: float | None) -> Array | None:
        """``table[s, d]``: the rows that rank s sends to rank d; None where parts are even."""
        if send_counts is None:
            return None
        rows = check_counts(send_counts, self.size, ())
        check_rows(as_rows(check_array(array, "array")), sum(rows), "array")
        return self.all_gather(np.array([rows], np.int64), timeout_s=timeout_s)

    def _check_open(self, what: str) -> None:
        if self._state != "open":
            raise ClosedError(f"{what}: this communicator is {self._state}", state=self._state)

    def _run(
        self,
        make: Callable[..., Request],
        what: tuple[object, ...],
        source: Array | None,
        target: Array | None,
        algorithm: Choice,
        timeout_s: float | None,
        more: tuple[Hashable, ...],
    ) -> Array | None:
        """Carry out a call on arrays of the user: as it was done before, or else as ``make(place, *what)`` says.

        ``more`` is what the call depends on besides the arrays. The first lines are all that a call that is repeated
        has to do in Python.
        """
        if self._state != "open":
            self._check_open(make.__name__)
        executor = self._executor
        if executor.shared.known:
            more = (*more, executor.shared.find(source, target))
        try:
            done = executor.repeat(make, algorithm, more, source, target, timeout_s)
        except Failed as failed:
            raise cast("Engine", executor.engine).error(*failed.args) from None
        if done is not NotImplemented:
            return cast("Array | None", done)
        return executor.run(make(self._place, *what), algorithm, timeout_s, (make, algorithm, more, source, target))


def _array(target: Array | None) -> Array:
    return cast("Array", target)  # of a collective from which every rank gets something


_open: weakref.WeakSet[Communicator] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for communicator in list(_open):
        communicator.close(drain_s=0)


def _forget_after_fork() -> None:
    for communicator in list(_open):
        communicator._state = "of the process that this one was forked from; call farandole.init() after forking"  # noqa: SLF001
    _open.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
