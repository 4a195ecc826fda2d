"""What can be reduced: the dtypes, the reduction operations, and which of them go together.

The rules that every engine keeps:

- Values are combined in the order that the schedule fixes.
- 16-bit floats are widened to float32, and rounded once, when the last contribution has gone in: to the nearest,
  ties to even.
- Integers wrap around. NaN propagates, through ``min`` and ``max`` too.
- Booleans are added as *or* and multiplied as *and*.
- ``avg`` is the sum, divided once, when it is complete; of integers it is cut off towards zero.
- ``min`` and ``max`` need an order, which complex numbers have not; ``band``, ``bor`` and ``bxor`` need bits that
  mean something by themselves.

NumPy has no bfloat16 of its own: its values are stored as uint16 with the same bits, or as the dtype of that
name from ``ml_dtypes`` where the user has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import UnknownNameError, UnsupportedError

Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: its name, its kind (bool, integer, float or complex), and how NumPy stores and adds it."""

    name: str
    kind: str
    storage: np.dtype[Any]
    accumulator: np.dtype[Any]

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.storage.itemsize

    def widen(self, stored: Values) -> Values:
        """Stored values as the type in which they are accumulated."""
        if self.name == "bfloat16":
            return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return stored.astype(self.accumulator, copy=False)

    def narrow(self, values: Values) -> Values:
        """Accumulated values rounded to the stored type."""
        if self.name == "bfloat16":
            return _rounded_to_bfloat16(values)
        with np.errstate(over="ignore"):
            return values.astype(self.storage, copy=False)


def _rounded_to_bfloat16(values: Values) -> Values:
    bits = np.ascontiguousarray(values).view(np.uint32)
    high = bits >> np.uint32(16)
    nearest = (bits + (np.uint32(0x7FFF) + (high & np.uint32(1)))) >> np.uint32(16)
    quiet = high | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, nearest).astype(np.uint16)


@dataclass(frozen=True, slots=True)
class Op:
    """A reduction: its name, the kinds of dtype it is for, what these are, and how two arrays are combined.

    ``divides`` says whether the complete value is divided by the number of ranks.
    """

    name: str
    kinds: frozenset[str]
    needs: str
    function: Callable[..., Values]
    divides: bool = False

    def combine(self, left: Values, right: Values) -> Values:
        """The element-wise combination, written over ``left``, which is returned."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.function(left, right, out=left)

    def finish(self, complete: Values, ranks: int) -> Values:
        """What comes out when the values of all ranks are combined."""
        if not self.divides:
            return complete
        if complete.dtype.kind not in "iu":
            quotient: Values = np.divide(complete, complete.dtype.type(ranks))
            return quotient
        wide = complete.astype(np.int64 if complete.dtype.kind == "i" else np.uint64)
        rounded_down = wide // wide.dtype.type(ranks)
        towards_zero: Values = rounded_down + ((wide < 0) & (wide % wide.dtype.type(ranks) != 0))
        return towards_zero.astype(complete.dtype)


_ALL = frozenset({"bool", "integer", "float", "complex"})
_ORDERED = _ALL - {"complex"}
_NUMBERS = _ALL - {"bool"}
_BITS = frozenset({"bool", "integer"})

OPS: dict[str, Op] = {
    op.name: op
    for op in (
        Op("sum", _ALL, "", np.add),
        Op("prod", _ALL, "", np.multiply),
        Op("min", _ORDERED, "numbers with an order", np.minimum),
        Op("max", _ORDERED, "numbers with an order", np.maximum),
        Op("avg", _NUMBERS, "numbers that can be divided", np.add, divides=True),
        Op("band", _BITS, "whole numbers and booleans", np.bitwise_and),
        Op("bor", _BITS, "whole numbers and booleans", np.bitwise_or),
        Op("bxor", _BITS, "whole numbers and booleans", np.bitwise_xor),
    )
}


def _dtype(name: str, kind: str, storage: str = "", accumulator: str = "") -> DType:
    stored = np.dtype(storage or name)
    return DType(name, kind, stored, np.dtype(accumulator) if accumulator else stored)


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        _dtype("bool", "bool"),
        *(_dtype(f"{sign}int{bits}", "integer") for sign in ("", "u") for bits in (8, 16, 32, 64)),
        _dtype("float16", "float", accumulator="float32"),
        _dtype("bfloat16", "float", storage="uint16", accumulator="float32"),
        _dtype("float32", "float"),
        _dtype("float64", "float"),
        _dtype("complex64", "complex"),
        _dtype("complex128", "complex"),
    )
}


def find_op(name: str) -> Op:
    """The operation of that name; UnknownNameError says which ones there are."""
    try:
        return OPS[name]
    except (KeyError, TypeError):  # what is no name at all may have no hash
        raise UnknownNameError("reduction", str(name), OPS) from None


def find_dtype(name: str) -> DType:
    """The dtype of that name; UnknownNameError says which ones there are."""
    try:
        return DTYPES[name]
    except KeyError:
        raise UnknownNameError("dtype", name, DTYPES) from None


def dtype_of(array: NDArray[Any]) -> DType:
    """The dtype of an array, in either byte order; UnsupportedError where it is none of ours."""
    name = array.dtype.name
    if name not in DTYPES:
        raise UnsupportedError(
            f"an array of dtype {name} cannot be communicated; supported are {', '.join(DTYPES)}",
            dtype=name,
            supported=tuple(DTYPES),
        )
    return DTYPES[name]


def ops_for(dtype: DType) -> list[str]:
    """The operations that go with a dtype.

    >>> ops_for(find_dtype("complex64"))
    ['sum', 'prod', 'avg']
    """
    return [op.name for op in OPS.values() if dtype.kind in op.kinds]


def check_reduction(op: Op, dtype: DType) -> None:
    """Raise UnsupportedError unless ``op`` goes with ``dtype``; says why not, and what does."""
    if dtype.kind not in op.kinds:
        fits = ops_for(dtype)
        raise UnsupportedError(
            f"{op.name} is for {op.needs}, which {dtype.name} is not; {dtype.name} goes with {', '.join(fits)}",
            op=op.name,
            dtype=dtype.name,
            supported=tuple(fits),
        )
