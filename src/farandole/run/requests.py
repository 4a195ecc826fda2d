"""Requests: a collective on a user's arrays, checked and put into the terms of the engine. Pure functions.

Arrays may have any shape and strides; what is shared out or put together by rank is cut along the first
axis, so the parts are rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farandole.collectives import COLLECTIVES
from farandole.errors import LengthError, UsageError
from farandole.layout import even_counts, split
from farandole.ops import check_reduction, dtype_of, find_op
from farandole.run.arrays import (
    Array,
    as_rows,
    check_array,
    check_counts,
    check_out,
    check_rows,
    row_length,
    row_shape,
)


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Which rank of how many makes a request."""

    rank: int
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One call of a collective by one rank.

    ``source`` is read and ``target`` written; either may be None. ``counts`` are the lengths of the blocks, in
    elements. ``in_place`` is how many bytes into the source the target begins if the call is in place;
    ``scale`` is what the source is multiplied by first.
    """

    collective: str
    source: Array | None
    target: Array | None
    counts: tuple[int, ...]
    op: str = ""
    root: int = 0
    in_place: int | None = None
    scale: float | None = None

    @property
    def dtype(self) -> np.dtype[np.generic] | None:
        """The dtype of what moves; None for a barrier."""
        sample = self.target if self.source is None else self.source
        return None if sample is None else sample.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an element of what moves; 1 for a barrier."""
        return 1 if self.dtype is None else self.dtype.itemsize


def check_root(place: Place, root: int) -> int:
    """The root, if there is such a rank; UsageError otherwise."""
    if not 0 <= root < place.size:
        raise UsageError(f"the root must be one of the ranks 0 to {place.size - 1}, not {root}", got=root)
    return root


def _check_op(array: Array, op: str, scale: float | None) -> None:
    dtype = dtype_of(array)
    check_reduction(find_op(op), dtype)
    if scale is not None and (op != "sum" or dtype.kind not in {"float", "complex"}):
        raise UsageError(f"scale goes with the sum of floating-point numbers, not with the {op} of {dtype.name}", op=op)


def all_reduce(_: Place, array: Array, op: str, scale: float | None, out: Array | None) -> Request:
    """See :meth:`Communicator.all_reduce`."""
    source = check_array(array, "array")
    _check_op(source, op, scale)
    target = check_out(source if out is None else out, source.shape, source.dtype)
    return Request("all_reduce", source, target, (source.size,), op, in_place=0, scale=scale)


def reduce(place: Place, array: Array, root: int, op: str, scale: float | None, out: Array | None) -> Request:
    """See :meth:`Communicator.reduce`."""
    source = check_array(array, "array")
    _check_op(source, op, scale)
    target = None
    if place.rank == check_root(place, root):
        target = check_out(source if out is None else out, source.shape, source.dtype)
    return Request("reduce", source, target, (source.size,), op, root, in_place=0, scale=scale)


def broadcast(place: Place, array: Array, root: int) -> Request:
    """See :meth:`Communicator.broadcast`."""
    source = check_array(array, "array")
    if place.rank == check_root(place, root):
        source = np.ascontiguousarray(source)
        return Request("broadcast", source, source, (source.size,), root=root, in_place=0)
    return Request("broadcast", None, check_out(source, source.shape, source.dtype), (source.size,), root=root)


def reduce_scatter(
    place: Place, array: Array, op: str, scale: float | None, counts: Sequence[int] | None, out: Array | None
) -> Request:
    """See :meth:`Communicator.reduce_scatter`."""
    source = as_rows(check_array(array, "array"))
    _check_op(source, op, scale)
    rows = check_counts(counts, place.size, np.diff(split(len(source), place.size)).tolist())
    check_rows(source, sum(rows), "array")
    target = check_out(out, (rows[place.rank], *row_shape(source)), source.dtype)
    width, before = row_length(source), _bytes_before(place, rows, source)
    return Request("reduce_scatter", source, target, _times(rows, width), op, in_place=before, scale=scale)


def all_gather(place: Place, array: Array, counts: Sequence[int] | None, out: Array | None) -> Request:
    """See :meth:`Communicator.all_gather`."""
    return _gathering("all_gather", place, array, counts, out, root=None)


def gather(place: Place, array: Array, root: int, counts: Sequence[int] | None, out: Array | None) -> Request:
    """See :meth:`Communicator.gather`."""
    return _gathering("gather", place, array, counts, out, check_root(place, root))


def _gathering(
    name: str, place: Place, array: Array, counts: Sequence[int] | None, out: Array | None, root: int | None
) -> Request:
    source = as_rows(check_array(array, "array"))
    rows = check_counts(counts, place.size, [len(source)] * place.size)
    check_rows(source, rows[place.rank], "array")
    target = None
    if root in {None, place.rank}:
        target = check_out(out, (sum(rows), *row_shape(source)), source.dtype)
    before = -_bytes_before(place, rows, source)
    return Request(name, source, target, _times(rows, row_length(source)), root=root or 0, in_place=before)


def scatter(place: Place, array: Array | None, root: int, counts: Sequence[int] | None, out: Array | None) -> Request:
    """See :meth:`Communicator.scatter`."""
    if place.rank != check_root(place, root):
        if out is None:
            raise UsageError(f"scatter: rank {place.rank} must give out, an array that its part fits", rank=place.rank)
        target = as_rows(check_out(check_array(out, "out"), out.shape, out.dtype))
        rows = check_counts(counts, place.size, [len(target)] * place.size)
        check_rows(target, rows[place.rank], "out")
        return Request("scatter", None, target, _times(rows, row_length(target)), root=root)
    if array is None:
        raise UsageError(f"scatter: rank {root} is the root and must give the array", rank=root)
    source = as_rows(check_array(array, "array"))
    if counts is None and len(source) % place.size:
        raise LengthError(
            f"scatter: {len(source)} rows cannot be shared out equally among {place.size} ranks; pass counts on"
            " every rank",
            got=len(source),
        )
    rows = check_counts(counts, place.size, [len(source) // place.size] * place.size)
    check_rows(source, sum(rows), "array")
    target = check_out(out, (rows[root], *row_shape(source)), source.dtype)
    before = _bytes_before(place, rows, source)
    return Request("scatter", source, target, _times(rows, row_length(source)), root=root, in_place=before)


def all_to_all(place: Place, array: Array, table: Array | None, out: Array | None) -> Request:
    """See :meth:`Communicator.all_to_all`; ``table[s, d]`` are the rows that rank s sends to rank d."""
    source = as_rows(check_array(array, "array"))
    if table is None:
        table = even_counts(COLLECTIVES["all_to_all"], place.size, len(source)).reshape(place.size, -1)
    check_rows(source, int(table[place.rank].sum()), "array")
    target = check_out(out, (int(table[:, place.rank].sum()), *row_shape(source)), source.dtype)
    return Request("all_to_all", source, target, _times(table.ravel().tolist(), row_length(source)))


def barrier(place: Place) -> Request:
    """See :meth:`Communicator.barrier`."""
    return Request("barrier", None, None, (0,) * place.size)


def _times(rows: Sequence[int], width: int) -> tuple[int, ...]:
    return tuple(count * width for count in rows)


def _bytes_before(place: Place, rows: Sequence[int], array: Array) -> int:
    """How many bytes of a contiguous array of all ranks' rows come before this rank's."""
    return sum(rows[: place.rank]) * row_length(array) * array.itemsize
