"""Trials: run algorithms on real processes of this machine, check every element, and time them.

The time of one repetition is that of the slowest rank, from a common start. Median and p99 are over the
repetitions. A trial whose result is wrong on any rank is not 'checked', and its times mean nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from farandole.bench.bandwidth import algbw, bus_factor
from farandole.bench.calls import CALLS, Trial, buffers
from farandole.bench.data import expected
from farandole.ops import find_dtype
from farandole.run.communicator import Communicator


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


def run_trial(communicator: Communicator, trial: Trial) -> Outcome:
    """Carry out one trial; every rank calls this with the same trial and gets the same outcome."""
    length = trial.size_bytes // find_dtype(trial.dtype).itemsize
    call, result = CALLS[trial.collective](communicator, trial, buffers(communicator, trial, length))
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
        for _ in range(min(10, trial.repetitions - len(times))):
            communicator.barrier()
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        more[0] = time.perf_counter() - begin < trial.limit_s
        communicator.all_reduce(more, op="min")
    slowest = communicator.all_reduce(np.array(times), op="max")
    return Outcome(
        trial=trial,
        ranks=communicator.size,
        size_bytes=length * find_dtype(trial.dtype).itemsize,
        repetitions=len(times),
        wrong_ranks=tuple(np.flatnonzero(flags).tolist()),
        median_s=float(np.median(slowest)),
        p99_s=float(np.quantile(slowest, 0.99)),
        min_s=float(slowest.min()),
    )
