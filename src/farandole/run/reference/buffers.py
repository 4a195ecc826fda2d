"""The arrays that go into a collective, one per rank: checked, flattened, and measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from farandole.collectives import Blocks, Collective
from farandole.errors import LengthError, UnsupportedError, UsageError
from farandole.layout import Offsets, even_counts
from farandole.ops import DType, Values, dtype_of, find_dtype


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """The inputs of all ranks, flat, in native byte order.

    ``rows`` are the lengths of the blocks along the first axis of the users' arrays, ``row_shape`` is the shape
    of what lies there; a whole buffer is one row. ``given`` is the users' dtype.
    """

    inputs: tuple[Values | None, ...]
    rows: Offsets
    row_shape: tuple[int, ...]
    dtype: DType
    given: np.dtype[Any]

    @property
    def counts(self) -> Offsets:
        """The lengths of the blocks in elements."""
        return self.rows * math.prod(self.row_shape)

    def returned(self, output: Values, rows: int, *, whole: bool) -> Values:
        """A flat output as the user gets it: in the shape and dtype of the inputs."""
        return output.view(self.given).reshape(self.row_shape if whole else (rows, *self.row_shape))


def accept(
    what: Collective,
    ranks: int,
    root: int,
    inputs: Sequence[ArrayLike | None] | None,
    *,
    counts: ArrayLike | None = None,
    dtype: str | None = None,
) -> Buffers:
    """Check the inputs of a collective against each other and against ``counts``, as ``execute`` takes them."""
    before = np.logical_or.reduce(what.before(ranks, what.block_count(ranks), root), axis=1)
    arrays = _arrays(what, (before & what.moves_data).tolist(), inputs)
    if not what.moves_data:
        return Buffers((None,) * ranks, even_counts(what, ranks, 0), (), find_dtype("uint8"), np.dtype(np.uint8))
    flat, kind, given = _flat(what, arrays, dtype)
    if what.blocks is Blocks.WHOLE and counts is not None:
        raise UsageError(f"{what.name} has one block, so it takes no counts", got=np.asarray(counts).tolist())
    by_row = what.blocks is not Blocks.WHOLE
    row_shape = _common_row_shape(what, arrays, by_row=by_row)
    lengths = [None if array is None else len(np.atleast_1d(array)) for array in arrays]
    rows = _block_rows(what, ranks, lengths, counts) if by_row else np.ones(1, np.int64)
    return Buffers(flat, rows, row_shape, kind, given)


def _arrays(
    what: Collective, has_input: list[bool], inputs: Sequence[ArrayLike | None] | None
) -> list[NDArray[Any] | None]:
    ranks = len(has_input)
    given = list(inputs) if inputs is not None else [] if any(has_input) else [None] * ranks
    if len(given) != ranks:
        raise UsageError(
            f"{what.name} on {ranks} ranks takes {ranks} inputs, one per rank, not {len(given)}",
            expected=ranks,
            got=len(given),
        )
    for rank, array in enumerate(given):
        if (array is not None) != has_input[rank]:
            rule = "has an input" if has_input[rank] else "has no input: pass None, or choose another root"
            shown = "None" if array is None else "an array"
            raise UsageError(f"in this {what.name}, rank {rank} {rule}; not {shown}", rank=rank)
    return [None if array is None else np.asarray(array) for array in given]


def _first(arrays: list[NDArray[Any] | None]) -> tuple[int, NDArray[Any]]:
    return next((rank, array) for rank, array in enumerate(arrays) if array is not None)


def _flat(
    what: Collective, arrays: list[NDArray[Any] | None], dtype: str | None
) -> tuple[tuple[Values | None, ...], DType, np.dtype[Any]]:
    """The arrays flat, as they are stored; our dtype of theirs, and the users'."""
    first, example = _first(arrays)
    kind = find_dtype(dtype) if dtype else dtype_of(example)
    if example.dtype.name not in (kind.name, kind.storage.name):
        raise UnsupportedError(
            f"{kind.name} is stored as {kind.storage.name}, not as {example.dtype.name}",
            expected=kind.storage.name,
            got=example.dtype.name,
        )
    given = example.dtype.newbyteorder("=")
    flat: list[Values | None] = []
    for rank, array in enumerate(arrays):
        if array is not None and array.dtype.newbyteorder("=") != given:
            raise UnsupportedError(
                f"rank {rank} has {array.dtype.name} and rank {first} has {example.dtype.name};"
                f" all ranks of one {what.name} have one dtype",
                rank=rank,
                expected=example.dtype.name,
                got=array.dtype.name,
            )
        flat.append(None if array is None else np.ascontiguousarray(array, given).ravel().view(kind.storage))
    return tuple(flat), kind, given


def _common_row_shape(what: Collective, arrays: list[NDArray[Any] | None], *, by_row: bool) -> tuple[int, ...]:
    """The shape that all arrays have, without their first axis if they are cut along it."""
    first, example = _first(arrays)
    for rank, array in enumerate(arrays):
        if array is not None and array.shape[by_row:] != example.shape[by_row:]:
            raise LengthError(
                f"rank {rank} has an array of shape {array.shape} and rank {first} of shape {example.shape};"
                f" all ranks of one {what.name} have one shape{' but for the first axis' if by_row else ''}",
                rank=rank,
                expected=example.shape,
                got=array.shape,
            )
    return example.shape[by_row:]


def _block_rows(what: Collective, ranks: int, lengths: list[int | None], counts: ArrayLike | None) -> Offsets:
    """The lengths of the blocks, from ``counts`` or from the inputs; they must agree."""
    per_pair = what.blocks is Blocks.PER_PAIR
    shape = (ranks, ranks) if per_pair else (ranks,)
    if counts is None:
        table = _rows_of_inputs(what, ranks, lengths)
    else:
        table = np.asarray(counts)
        if table.shape != shape or table.dtype.kind not in "iu" or (table < 0).any():
            raise LengthError(
                f"the counts of {what.name} on {ranks} ranks are whole numbers of shape {shape}, at least 0,"
                f" not {np.asarray(counts).tolist()}",
                expected=shape,
                got=table.shape,
            )
        table = table.astype(np.int64)
    by_rank = table.sum(axis=1) if per_pair else table if what.input == "own" else np.full(ranks, table.sum())
    for rank, (length, count) in enumerate(zip(lengths, by_rank.tolist(), strict=True)):
        if length is not None and length != count:
            whose = "its counts add up to" if counts is not None else "rank 0 has"
            raise LengthError(
                f"rank {rank} gives {length} rows to this {what.name}, but {whose} {count}",
                rank=rank,
                expected=count,
                got=length,
            )
    return np.ascontiguousarray(table.ravel(), np.int64)


def _rows_of_inputs(what: Collective, ranks: int, lengths: list[int | None]) -> Offsets:
    known = [length for length in lengths if length is not None]
    if what.blocks is Blocks.PER_PAIR:
        row = [even_counts(what, ranks, length)[:ranks] for length in known]
        return np.array(row, np.int64)
    return np.array(known, np.int64) if what.input == "own" else even_counts(what, ranks, known[0])
