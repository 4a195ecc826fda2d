"""Checks and copies between a user's NumPy arrays and the plain memory that an engine works on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import LengthError, UnsupportedError, UsageError

Array = NDArray[Any]


def check_array(array: Any, what: str) -> Array:
    """``array`` itself; UsageError unless it is a NumPy array of plain elements in native byte order."""
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{what} must be a NumPy array, not {type(array).__name__}", got=type(array).__name__)
    if array.dtype.hasobject or not array.dtype.isnative:
        kind = "Python objects" if array.dtype.hasobject else "numbers in foreign byte order"
        raise UnsupportedError(f"{what} holds {kind} ({array.dtype}), which cannot be sent", dtype=str(array.dtype))
    return array


def check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """``out``, or a new array where it is None; LengthError or UnsupportedError unless it fits."""
    if out is None:
        return np.empty(shape, dtype)
    check_array(out, "out")
    if out.shape != shape:
        raise LengthError(f"out must have shape {shape}, not {out.shape}", expected=shape, got=out.shape)
    if out.dtype != dtype:
        raise UnsupportedError(f"out must have dtype {dtype}, as the input, not {out.dtype}", expected=str(dtype))
    if not out.flags.writeable:
        raise UsageError("out is read-only")
    return np.asarray(out)


def check_counts(counts: Sequence[int] | None, ranks: int, default: Sequence[int]) -> list[int]:
    """Rows per rank as a list; ``default`` where None. LengthError unless there is one, 0 or more, per rank."""
    if counts is None:
        return [int(count) for count in default]
    listed = [int(count) for count in counts]
    if len(listed) != ranks or min(listed) < 0:
        raise LengthError(f"counts must be {ranks} numbers of 0 or more, one per rank, not {listed}", got=listed)
    return listed


def check_rows(array: Array, rows: int, what: str) -> None:
    """LengthError unless ``array`` has ``rows`` rows."""
    if len(array) != rows:
        raise LengthError(
            f"{what} must have {rows} rows, as counts say, not {len(array)}", expected=rows, got=len(array)
        )


def row_shape(array: Array) -> tuple[int, ...]:
    """The shape of what lies along the first axis; a 0-dimensional array counts as one row."""
    return array.shape[1:]


def row_length(array: Array) -> int:
    """Elements per row."""
    return math.prod(row_shape(array))


def as_rows(array: Array) -> Array:
    """The array itself, with at least one axis."""
    return array.reshape(1) if array.ndim == 0 else array


def address(array: Array | None) -> int:
    """Where the memory of a contiguous array begins; 0 for none."""
    return 0 if array is None else int(array.__array_interface__["data"][0])


def readable(source: Array, target: Array | None, offset_bytes: int | None) -> Array:
    """``source`` as contiguous memory that writing to ``target`` does not spoil.

    They may overlap only where the target begins ``offset_bytes`` into the source (before it, if negative):
    the place where a call in place has it. Otherwise the source is copied.
    """
    source = np.ascontiguousarray(source)
    if target is None or not np.may_share_memory(source, target):
        return source
    in_place = offset_bytes is not None and address(target) == address(source) + offset_bytes
    return source if in_place else source.copy()
