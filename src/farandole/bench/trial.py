"""Trials: run algorithms on real processes of this machine, check every element, and time them.

Calls are made back to back, as nccl-tests and the OSU benchmarks do; the time of one repetition is the mean
of what it took on each rank. Median and p99 are over the repetitions. A trial whose result is wrong on any
rank is not 'checked', and its times mean nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from farandole.bandwidth import algbw, bus_factor
from farandole.bench.calls import CALLS, Trial, buffers
from farandole.bench.data import expected
from farandole.ops import find_dtype
from farandole.run.communicator import Communicator
from farandole.run.executor import Choice

_ROUND = 10  # calls between two looks at the clock


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trial, over all ranks. ``wrong_ranks`` are those whose result was not right."""

    trial: Trial
    ranks: int
    size_bytes: int
    repetitions: int
    wrong_ranks: tuple[int, ...]
    median_s: float
    p99_s: float
    min_s: float

    @property
    def checked(self) -> bool:
        """Whether every element was right on every rank."""
        return not self.wrong_ranks

    @property
    def algbw(self) -> float:
        """Bytes per second: the size over the median time."""
        return algbw(self.size_bytes, self.median_s)

    @property
    def busbw(self) -> float:
        """Bytes per second, comparable with the bandwidth of links."""
        return self.algbw * bus_factor(self.trial.collective, self.ranks)


def run_trial(communicator: Communicator, trial: Trial, algorithm: Choice) -> Outcome:
    """Carry out one trial with ``algorithm``, which is the trial's or the schedule that it names.

    Every rank calls this with the same trial and gets the same outcome.
    """
    length = trial.size_bytes // find_dtype(trial.dtype).itemsize
    call, result = CALLS[trial.collective](communicator, trial, algorithm, buffers(communicator, trial, length))
    call()
    want = expected(
        trial.collective,
        communicator.size,
        communicator.rank,
        length,
        dtype=trial.dtype,
        op=trial.op,
        root=trial.root,
    )
    wrong = want is not None and (result is None or not np.array_equal(result, want))
    flags = communicator.all_gather(np.array([wrong], np.bool_))

    for _ in range(trial.warm_up):
        call()
    times: list[float] = []
    begin = time.perf_counter()
    more = np.ones(1, np.int8)
    while len(times) < trial.repetitions and more[0]:
        communicator.barrier()
        for _ in range(min(_ROUND, trial.repetitions - len(times))):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        more[0] = time.perf_counter() - begin < trial.limit_s
        communicator.all_reduce(more, op="min")
    each = communicator.all_reduce(np.array(times), op="avg")
    return Outcome(
        trial=trial,
        ranks=communicator.size,
        size_bytes=length * find_dtype(trial.dtype).itemsize,
        repetitions=len(times),
        wrong_ranks=tuple(np.flatnonzero(flags).tolist()),
        median_s=float(np.median(each)),
        p99_s=float(np.quantile(each, 0.99)),
        min_s=float(each.min()),
    )
