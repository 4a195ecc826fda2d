"""How each collective is called in a trial: on buffers made once, so that only the call itself is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.bench.data import input_length, values
from farandole.layout import split
from farandole.run.communicator import Communicator
from farandole.run.executor import Choice

Array = NDArray[Any]
Prepared = tuple[Callable[[], object], Array | None]


@dataclass(frozen=True, slots=True)
class Trial:
    """One thing to run: an algorithm for a collective on a buffer of ``size_bytes``.

    It is repeated ``repetitions`` times, after ``warm_up`` ones that do not count, but not for longer than
    ``limit_s`` in all.
    """

    collective: str
    algorithm: str
    size_bytes: int
    dtype: str = "float32"
    op: str = "sum"
    root: int = 0
    repetitions: int = 50
    warm_up: int = 3
    limit_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Buffers:
    """A rank's input, its part of the buffer, the whole buffer, and how long each rank's part is (None: all equal)."""

    given: Array
    part: Array
    whole: Array
    counts: list[int] | None
    is_root: bool


def buffers(c: Communicator, t: Trial, length: int) -> Buffers:
    """Buffers for a trial whose largest buffer has ``length`` elements."""
    given = values(c.rank, input_length(t.collective, c.size, c.rank, length, t.root), t.dtype, t.op)
    counts = np.diff(split(length, c.size)).tolist()
    mine = counts[c.rank] * (c.size if t.collective == "all_to_all" else 1)
    parts = None if length % c.size == 0 else counts
    return Buffers(given, np.zeros(mine, given.dtype), np.zeros(length, given.dtype), parts, c.rank == t.root)


def _all_reduce(c: Communicator, t: Trial, how: Choice, b: Buffers) -> Prepared:
    return lambda: c.all_reduce(b.given, t.op, algorithm=how, out=b.whole), b.whole


def _reduce(c: Communicator, t: Trial, how: Choice, b: Buffers) -> Prepared:
    out = b.whole if b.is_root else None
    return lambda: c.reduce(b.given, t.root, t.op, algorithm=how, out=out), out


def _reduce_scatter(c: Communicator, t: Trial, how: Choice, b: Buffers) -> Prepared:
    return lambda: c.reduce_scatter(b.given, t.op, counts=b.counts, algorithm=how, out=b.part), b.part


def _all_gather(c: Communicator, _t: Trial, how: Choice, b: Buffers) -> Prepared:
    return lambda: c.all_gather(b.given, counts=b.counts, algorithm=how, out=b.whole), b.whole


def _gather(c: Communicator, t: Trial, how: Choice, b: Buffers) -> Prepared:
    out = b.whole if b.is_root else None
    return lambda: c.gather(b.given, t.root, counts=b.counts, algorithm=how, out=out), out


def _scatter(c: Communicator, t: Trial, how: Choice, b: Buffers) -> Prepared:
    source = b.given if b.is_root else None
    return lambda: c.scatter(source, t.root, counts=b.counts, algorithm=how, out=b.part), b.part


def _broadcast(c: Communicator, t: Trial, how: Choice, b: Buffers) -> Prepared:
    array = b.given if b.is_root else b.whole
    return lambda: c.broadcast(array, t.root, algorithm=how), array


def _all_to_all(c: Communicator, _t: Trial, how: Choice, b: Buffers) -> Prepared:
    return lambda: c.all_to_all(b.given, algorithm=how, out=b.part), b.part


def _barrier(c: Communicator, _t: Trial, how: Choice, _b: Buffers) -> Prepared:
    return lambda: c.barrier(algorithm=how), None


CALLS: dict[str, Callable[[Communicator, Trial, Choice, Buffers], Prepared]] = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "barrier": _barrier,
    "broadcast": _broadcast,
    "gather": _gather,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "scatter": _scatter,
}
