"""The communicator: the collectives as methods, on NumPy arrays, for the ranks of one host.

All ranks make the same calls in the same order. Arrays may have any shape and strides; what is shared out
or put together by rank is cut along the first axis. A failure raises on every rank and leaves the
communicator broken: close it and make a new one.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Sequence
from types import TracebackType

import numpy as np

from farandole.collectives import COLLECTIVES
from farandole.errors import ClosedError, LengthError, UsageError
from farandole.layout import even_counts, split
from farandole.ops import check_reduction, dtype_of, find_op
from farandole.run.arrays import (
    Array,
    address,
    as_rows,
    check_array,
    check_counts,
    check_out,
    check_rows,
    readable,
    row_length,
    row_shape,
)
from farandole.run.auto import choose
from farandole.run.engine import Call, Engine

AUTO = "auto"


class Communicator:
    """The ranks of one job, made by :func:`farandole.init`.

    Every method that communicates takes ``algorithm``: ``auto``, or ``name:option=value,...`` as the command
    line does; and ``timeout_s``, the time after which a rank that does not come is an error.
    """

    def __init__(self, rank: int, size: int, engine: Engine | None, timeout_s: float) -> None:
        """Use :func:`farandole.init`. ``engine`` is None in a world of one rank."""
        self._rank = rank
        self._size = size
        self._engine = engine
        self._timeout_s = timeout_s
        self._state = "open"
        _open.add(self)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<farandole.Communicator rank {self._rank} of {self._size}, {self._state}>"

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._size

    def close(self) -> None:
        """Leave; the other ranks get an error if they still expect this one. Closing twice is harmless."""
        if self._state != "open":
            return
        self._state = "closed"
        _open.discard(self)
        if self._engine is not None:
            self._engine.close()

    def all_reduce(
        self,
        array: Array,
        op: str = "sum",
        *,
        algorithm: str = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array:
        """Combine the arrays of all ranks element by element; every rank gets the result.

        In place, or into ``out`` of the same shape. Returns the array that holds the result.
        """
        source = check_array(array, "array")
        target = check_out(source if out is None else out, source.shape, source.dtype)
        self._run("all_reduce", source, target, [source.size], op, algorithm, timeout_s, in_place=0)
        return target

    def reduce(
        self,
        array: Array,
        root: int = 0,
        op: str = "sum",
        *,
        algorithm: str = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array | None:
        """Combine the arrays of all ranks; the root gets the result, in place or in ``out``; others get None."""
        source = check_array(array, "array")
        target = None
        if self._rank == self._check_root(root):
            target = check_out(source if out is None else out, source.shape, source.dtype)
        self._run("reduce", source, target, [source.size], op, algorithm, timeout_s, root, in_place=0)
        return target

    def broadcast(self, array: Array, root: int = 0, *, algorithm: str = AUTO, timeout_s: float | None = None) -> Array:
        """Copy the root's array into that of every other rank, which has the same shape and dtype."""
        check_array(array, "array")
        if self._rank == self._check_root(root):
            source = target = np.ascontiguousarray(array)
        else:
            source, target = None, check_out(array, array.shape, array.dtype)
        self._run("broadcast", source, target, [array.size], "", algorithm, timeout_s, root, in_place=0)
        return array

    def reduce_scatter(
        self,
        array: Array,
        op: str = "sum",
        *,
        counts: Sequence[int] | None = None,
        algorithm: str = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array:
        """Combine the arrays of all ranks; rank r gets the r-th part of the result.

        ``counts`` are the rows of each part; without it, they are as even as can be.
        """
        source = as_rows(check_array(array, "array"))
        rows = check_counts(counts, self._size, np.diff(split(len(source), self._size)).tolist())
        check_rows(source, sum(rows), "array")
        target = check_out(out, (rows[self._rank], *row_shape(source)), source.dtype)
        width = row_length(source)
        before = sum(rows[: self._rank]) * width * source.itemsize
        self._run(
            "reduce_scatter", source, target, [r * width for r in rows], op, algorithm, timeout_s, in_place=before
        )
        return target

    def all_gather(
        self,
        array: Array,
        *,
        counts: Sequence[int] | None = None,
        algorithm: str = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array:
        """Put the arrays of all ranks one after another, along the first axis; every rank gets the whole.

        Where ranks give different numbers of rows, every rank passes them all as ``counts``.
        """
        source = as_rows(check_array(array, "array"))
        rows = check_counts(counts, self._size, [len(source)] * self._size)
        check_rows(source, rows[self._rank], "array")
        target = check_out(out, (sum(rows), *row_shape(source)), source.dtype)
        width = row_length(source)
        before = -sum(rows[: self._rank]) * width * source.itemsize
        self._run("all_gather", source, target, [r * width for r in rows], "", algorithm, timeout_s, in_place=before)
        return target

    def gather(
        self,
        array: Array,
        root: int = 0,
        *,
        counts: Sequence[int] | None = None,
        algorithm: str = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array | None:
        """As all_gather, but only the root gets the whole; the others get None."""
        source = as_rows(check_array(array, "array"))
        rows = check_counts(counts, self._size, [len(source)] * self._size)
        check_rows(source, rows[self._rank], "array")
        target = None
        if self._rank == self._check_root(root):
            target = check_out(out, (sum(rows), *row_shape(source)), source.dtype)
        width = row_length(source)
        before = -sum(rows[: self._rank]) * width * source.itemsize
        self._run("gather", source, target, [r * width for r in rows], "", algorithm, timeout_s, root, in_place=before)
        return target

    def scatter(
        self,
        array: Array | None,
        root: int = 0,
        *,
        counts: Sequence[int] | None = None,
        algorithm: str = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array:
        """Share out the root's array: rank r gets the r-th part of its rows.

        The other ranks pass None for ``array`` and give ``out``, which says what they expect. Without
        ``counts`` all parts are equal, so the root's rows must be a multiple of the ranks.
        """
        if self._rank == self._check_root(root):
            if array is None:
                raise UsageError(f"scatter: rank {root} is the root and must give the array")
            source = as_rows(check_array(array, "array"))
            if counts is None and len(source) % self._size:
                raise LengthError(
                    f"scatter: {len(source)} rows cannot be shared out equally among {self._size} ranks; pass"
                    " counts on every rank",
                    got=len(source),
                )
            rows = check_counts(counts, self._size, [len(source) // self._size] * self._size)
            check_rows(source, sum(rows), "array")
            target = check_out(out, (rows[root], *row_shape(source)), source.dtype)
            width, before = row_length(source), sum(rows[:root]) * row_length(source) * source.itemsize
        else:
            if out is None:
                raise UsageError(f"scatter: rank {self._rank} must give out, an array that its part fits")
            source, before = None, None
            target = as_rows(check_out(check_array(out, "out"), out.shape, out.dtype))
            rows = check_counts(counts, self._size, [len(target)] * self._size)
            check_rows(target, rows[self._rank], "out")
            width = row_length(target)
        self._run("scatter", source, target, [r * width for r in rows], "", algorithm, timeout_s, root, in_place=before)
        return target

    def all_to_all(
        self,
        array: Array,
        *,
        send_counts: Sequence[int] | None = None,
        algorithm: str = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Array:
        """Rank r's d-th part becomes rank d's r-th part.

        ``send_counts`` are the rows for each rank, given by all ranks or by none (they are exchanged first);
        without it, parts are as even as can be, and every rank must have the same number of rows.
        """
        source = as_rows(check_array(array, "array"))
        width = row_length(source)
        if send_counts is None:
            table = even_counts(COLLECTIVES["all_to_all"], self._size, len(source)).reshape(self._size, -1)
        else:
            rows = check_counts(send_counts, self._size, ())
            check_rows(source, sum(rows), "array")
            table = self.all_gather(np.array([rows], np.int64), timeout_s=timeout_s)
        target = check_out(out, (int(table[:, self._rank].sum()), *row_shape(source)), source.dtype)
        self._run("all_to_all", source, target, (table * width).ravel().tolist(), "", algorithm, timeout_s)
        return target

    def barrier(self, *, algorithm: str = AUTO, timeout_s: float | None = None) -> None:
        """Return when every rank has called it."""
        self._run("barrier", None, None, [0] * self._size, "", algorithm, timeout_s)

    def _check_root(self, root: int) -> int:
        if not 0 <= root < self._size:
            raise UsageError(f"the root must be one of the ranks 0 to {self._size - 1}, not {root}", got=root)
        return root

    def _run(
        self,
        collective: str,
        source: Array | None,
        target: Array | None,
        counts: list[int],
        op: str,
        algorithm: str,
        timeout_s: float | None,
        root: int = 0,
        in_place: int | None = None,
    ) -> None:
        """Carry out one call. ``in_place`` is how many bytes into the source the target may begin."""
        if self._state != "open":
            raise ClosedError(f"{collective}: this communicator is {self._state}", state=self._state)
        sample = target if source is None else source
        dtype, itemsize = ("", 1) if sample is None else (sample.dtype.name, sample.itemsize)
        if op and sample is not None:
            check_reduction(find_op(op), dtype_of(sample))
        if algorithm == AUTO:
            algorithm = choose(collective, self._size, sum(counts) * itemsize)
        call = Call(collective, algorithm, tuple(counts), dtype, itemsize, op, root)

        whole = target is None or target.flags.c_contiguous
        work = target if whole else np.empty(target.shape, target.dtype)  # type: ignore[union-attr]
        memory = None if source is None else readable(source, work, in_place)
        if self._engine is None:
            if work is not None and memory is not None:
                np.copyto(work.reshape(-1), memory.reshape(-1))
        else:
            limit = self._timeout_s if timeout_s is None else timeout_s
            self._engine.run(self._engine.planned(call), address(memory), address(work), limit)
        if not whole:
            target[...] = work  # type: ignore[index]


_open: weakref.WeakSet[Communicator] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for communicator in list(_open):
        communicator.close()


def _forget_after_fork() -> None:
    for communicator in list(_open):
        communicator._state = "of another process: this one was forked from it; call farandole.init() after forking"  # noqa: SLF001
    _open.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
