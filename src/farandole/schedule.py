"""Schedules: what every rank sends to whom, round by round.

A schedule cuts the buffer into equal chunks and says, for each round, which chunks go where.
The rules of the model:

- A *transfer* carries ``count`` consecutive chunks from ``src`` to ``dst``; on arrival they are copied
  over what the receiver holds, or reduced into it.
- All transfers of a round carry what the sender held when *its* round began. A rank begins a round when
  its own earlier rounds are done; there is no barrier between rounds.
- When several transfers of one round are reduced into the same chunk of the same rank, the operands are
  the receiver's value and the values received, folded from the left in ascending order of the rank that
  held them. So two ranks that combine the same values end with the same bits.
- Nothing else writes: at most one copy, or any number of reductions, into a chunk of a rank in a round.

A round is written for all ranks at once, as NumPy columns. That reads like the formula in the paper, and
a 1,024-rank ring (2.1 million transfers) is built in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from farandole.errors import UsageError
from farandole.notebook import shown_by

Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]

COLUMNS = ("src", "dst", "chunk", "count", "reduce")


def _column(values: Any, length: int, dtype: Any) -> Any:
    column = np.ascontiguousarray(np.broadcast_to(np.asarray(values), (length,)), dtype=dtype)
    column.flags.writeable = False
    return column


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """The transfers that are posted together, one per entry of five columns of equal length.

    ``src``, ``dst``, ``chunk`` and ``count`` are int32, ``reduce`` is bool; scalars are repeated.
    ``phase`` names the part of the algorithm that the round belongs to.

    >>> r = np.arange(3)
    >>> Round(src=r, dst=(r + 1) % 3, chunk=r, reduce=True)
    Round(3 transfers: 0+>1 1+>2 2+>0)
    """

    src: Ints
    dst: Ints
    chunk: Ints
    count: Ints
    reduce: Bools
    phase: str

    def __init__(
        self,
        src: ArrayLike,
        dst: ArrayLike,
        chunk: ArrayLike = 0,
        count: ArrayLike = 1,
        reduce: ArrayLike = False,
        phase: str = "",
    ) -> None:
        columns = {"src": src, "dst": dst, "chunk": chunk, "count": count, "reduce": reduce}
        lengths = {np.size(column) for column in columns.values() if np.ndim(column)}
        if len(lengths) > 1:
            shown = ", ".join(f"{name}: {np.size(column)}" for name, column in columns.items())
            raise UsageError(f"the columns of a round must be of one length, not {shown}", lengths=lengths)
        length = lengths.pop() if lengths else 1
        for name, column in columns.items():
            dtype = np.bool_ if name == "reduce" else np.int32
            object.__setattr__(self, name, _column(column, length, dtype))
        object.__setattr__(self, "phase", phase)

    def __len__(self) -> int:
        return len(self.src)

    def __repr__(self) -> str:
        arrows = [
            f"{src}{'+>' if reduce else '->'}{dst}"
            for src, dst, reduce in zip(self.src[:4], self.dst[:4], self.reduce[:4], strict=True)
        ]
        more = " ..." if len(self) > len(arrows) else ""
        return f"Round({len(self)} transfers: {' '.join(arrows)}{more})"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A collective, a world size, a number of chunks, and the rounds that carry it out.

    ``collective`` is a name in :mod:`farandole.collectives`; ``root`` matters where the collective has one.
    ``name`` is the algorithm that built it, with its options, for people.
    """

    collective: str
    ranks: int
    chunks: int
    rounds: tuple[Round, ...] = field(repr=False)
    root: int = 0
    name: str = ""

    _repr_html_ = shown_by("schedule_html")

    @property
    def transfers(self) -> int:
        """How many transfers there are in all rounds together."""
        return sum(len(round_) for round_ in self.rounds)

    def columns(self) -> dict[str, Ints]:
        """All transfers in one table: ``round``, ``src``, ``dst``, ``chunk``, ``count``, ``reduce`` (0 or 1)."""
        table: dict[str, Ints] = {}
        for name in COLUMNS:
            parts = [getattr(round_, name) for round_ in self.rounds]
            table[name] = np.concatenate(parts).astype(np.int32) if parts else np.empty(0, np.int32)
        table["round"] = np.repeat(np.arange(len(self.rounds), dtype=np.int32), [len(round_) for round_ in self.rounds])
        return table


def named(phase: str, rounds: Iterable[Round]) -> Iterator[Round]:
    """The same rounds, each marked as part of ``phase``."""
    for round_ in rounds:
        inner = f"{phase}: {round_.phase}" if round_.phase else phase
        yield Round(round_.src, round_.dst, round_.chunk, round_.count, round_.reduce, inner)


def merged(*schedules: Iterable[Round]) -> Iterator[Round]:
    """Run several sequences of rounds side by side: the k-th rounds of all become one round."""
    for together in zip_longest(*schedules):
        rounds = [round_ for round_ in together if round_ is not None]
        columns = (np.concatenate([getattr(r, name) for r in rounds]) for name in COLUMNS)
        yield Round(*columns, phase=_common_phase([r.phase for r in rounds]))  # type: ignore[misc, arg-type]


def _common_phase(phases: list[str]) -> str:
    return " | ".join(dict.fromkeys(phase for phase in phases if phase))


def placed(rounds: Iterable[Round], ranks: ArrayLike, chunk: int | Ints = 0, width: int = 1) -> Iterator[Round]:
    """Lay rounds written for ranks 0..k-1 over other ranks and another part of the buffer.

    ``ranks[i]`` takes the part of rank ``i``. Each chunk of the original becomes ``width`` chunks, the
    first at ``chunk``. With ``ranks`` of shape (groups, k) and ``chunk`` of shape (groups,), all groups
    run at once.
    """
    members = np.atleast_2d(np.asarray(ranks, np.int32))
    base = np.broadcast_to(np.asarray(chunk, np.int32), (len(members),))[:, None]
    for r in rounds:
        shape = (len(members), len(r))
        yield Round(
            src=members[:, r.src].ravel(),
            dst=members[:, r.dst].ravel(),
            chunk=(base + r.chunk * width).ravel(),
            count=np.broadcast_to(r.count * width, shape).ravel(),
            reduce=np.broadcast_to(r.reduce, shape).ravel(),
            phase=r.phase,
        )


def wrapped(src: ArrayLike, dst: ArrayLike, start: ArrayLike, count: ArrayLike, modulo: int, **rest: Any) -> Round:
    """A round whose runs of chunks may pass the end and go on at chunk 0: such a run becomes two transfers."""
    columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(c, np.int32)) for c in (src, dst, start, count)))
    src_, dst_, start_, count_ = columns
    start_ = start_ % modulo
    first = np.minimum(count_, modulo - start_)
    over = np.flatnonzero(count_ > first)
    keep = np.flatnonzero(first > 0)
    return Round(
        src=np.concatenate([src_[keep], src_[over]]),
        dst=np.concatenate([dst_[keep], dst_[over]]),
        chunk=np.concatenate([start_[keep], np.zeros(len(over), np.int32)]),
        count=np.concatenate([first[keep], (count_ - first)[over]]),
        **rest,
    )
