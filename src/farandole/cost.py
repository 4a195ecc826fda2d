"""What a schedule costs: rounds, bytes per rank, and the time of the alpha-beta-gamma model.

The rules of the model:

- Chunks have their true lengths, in whole elements, so that nothing is rounded off.
- Rounds follow each other. A round takes ``alpha`` (the start-up time), plus ``beta`` for every byte at the
  busiest rank (sending and receiving at the same time, so the larger of the two), plus ``gamma`` for every
  byte reduced at the rank that reduces most.
- ``overhead`` is paid for every message at the busiest port, so that a rank that talks to many at once is not
  taken to do so for free. It is 0 in the classical model.
- Links do not get in each other's way; the simulator knows about those.

This is the model of Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in
MPICH, IJHPCA 2005; with it the textbook's closed forms come out of the schedule by counting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.collectives import collective
from farandole.errors import LengthError, ScheduleError
from farandole.layout import even_counts, layout
from farandole.schedule import Round, Schedule

PerRank = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rates:
    """The parameters of the model, in seconds, and seconds per byte.

    The defaults are those of a good data-centre network: 5 us to start, 25 GB/s, additions for free.
    """

    alpha_s: float = 5e-6
    beta_s_per_byte: float = 1 / 25e9
    gamma_s_per_byte: float = 0.0
    overhead_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Cost:
    """What a schedule costs for a buffer of ``size_bytes``.

    ``bytes_sent``, ``bytes_received``, ``bytes_reduced`` and ``messages_sent`` have shape (ranks,),
    ``round_times_s`` has shape (rounds,).
    """

    size_bytes: int
    bytes_sent: PerRank
    bytes_received: PerRank
    bytes_reduced: PerRank
    messages_sent: PerRank
    round_times_s: NDArray[np.float64]

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.round_times_s)

    @property
    def time_s(self) -> float:
        """The time of all rounds together."""
        return float(self.round_times_s.sum())


def price(schedule: Schedule, size_bytes: int, *, itemsize: int = 4, rates: Rates | None = None) -> Cost:
    """Count what ``schedule`` does for a buffer of ``size_bytes``, and add up its time.

    The buffer is the whole one: what an all-gather ends with, what a reduce-scatter starts with, what one rank
    of an all-to-all sends. Its elements of ``itemsize`` bytes are shared out as evenly as can be; a barrier has
    none. Raises LengthError unless the size is a whole number of elements, and ScheduleError for a transfer
    outside the world.

    >>> from farandole.algorithms import build
    >>> cost = price(build("all_reduce", "ring", 4), 4096)
    >>> cost.rounds, cost.bytes_sent.tolist()
    (6, [6144, 6144, 6144, 6144])
    """
    what = collective(schedule.collective)
    if size_bytes < 0 or size_bytes % itemsize:
        raise LengthError(
            f"a buffer of {size_bytes} bytes is not a whole number of elements of {itemsize} bytes",
            expected=itemsize,
            got=size_bytes,
        )
    elements = size_bytes // itemsize if what.moves_data else 0
    counts = even_counts(what, schedule.ranks, elements)
    chunk_bytes = layout(what, schedule.ranks, schedule.chunks, counts, itemsize=itemsize).length * itemsize
    return _add_up(schedule, size_bytes, chunk_bytes, rates or Rates())


def _add_up(schedule: Schedule, size_bytes: int, chunk_bytes: PerRank, rates: Rates) -> Cost:
    ranks = schedule.ranks
    begin = np.concatenate([[0], np.cumsum(chunk_bytes)])
    sent, received, reduced, messages = (np.zeros(ranks, np.int64) for _ in range(4))
    times = np.empty(len(schedule.rounds), np.float64)
    for number, round_ in enumerate(schedule.rounds):
        _check_range(round_, number, ranks, schedule.chunks)
        weight = begin[round_.chunk + round_.count] - begin[round_.chunk]
        out = _per_rank(round_.src, weight, ranks)
        into = _per_rank(round_.dst, weight, ranks)
        folded = _per_rank(round_.dst, weight * round_.reduce, ranks)
        posted, taken = (np.bincount(column, minlength=ranks) for column in (round_.src, round_.dst))
        times[number] = (
            rates.alpha_s
            + rates.beta_s_per_byte * int(np.maximum(out, into).max())
            + rates.gamma_s_per_byte * int(folded.max())
            + rates.overhead_s * int(np.maximum(posted, taken).max())
        )
        sent += out
        received += into
        reduced += folded
        messages += posted
    return Cost(size_bytes, sent, received, reduced, messages, times)


def _per_rank(rank: NDArray[np.int32], weight: PerRank, ranks: int) -> PerRank:
    """The sum of the weights of each rank; exact, since float64 holds every whole number below 2^53."""
    return np.bincount(rank, weight, ranks).astype(np.int64)


def _check_range(round_: Round, number: int, ranks: int, chunks: int) -> None:
    low = np.minimum(np.minimum(round_.src, round_.dst), round_.chunk) < 0
    high = (np.maximum(round_.src, round_.dst) >= ranks) | (round_.chunk.astype(np.int64) + round_.count > chunks)
    bad = np.flatnonzero(low | high | (round_.count < 1))
    if len(bad):
        src, dst, chunk, count = (int(c[bad[0]]) for c in (round_.src, round_.dst, round_.chunk, round_.count))
        raise ScheduleError(
            f"round {number + 1}: a transfer of {count} chunks from chunk {chunk}, rank {src} to rank {dst}, is outside"
            f" a world of {ranks} ranks and {chunks} chunks, so it has no price; the verifier lists all such faults",
            round=number,
            transfer=int(bad[0]),
        )
