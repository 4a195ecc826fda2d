"""What the ranks of ``farandole run --trace`` do: record one call of a trial, as it typically goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from farandole.bench.calls import CALLS, Trial, buffers
from farandole.export.json import read_schedule
from farandole.ops import find_dtype
from farandole.run.start import init
from farandole.trace import Trace

CALLS_RECORDED = 9


def typical_trace(trial: Mapping[str, Any], schedules: Mapping[str, str], settings: Mapping[str, Any]) -> str | None:
    """Carry out the trial (the fields of a Trial) and return a trace, as JSON, from rank 0.

    Of several calls it is the one that took the median time. ``schedules`` and ``settings`` are as in ``run_trials``.
    """
    described = Trial(**trial)
    length = described.size_bytes // find_dtype(described.dtype).itemsize
    given = schedules.get(described.algorithm)
    algorithm = described.algorithm if given is None else read_schedule(given.encode())
    with init(**settings) as communicator:
        prepared = buffers(communicator, described, length)
        call, _ = CALLS[described.collective](communicator, described, algorithm, prepared)
        for _ in range(described.warm_up):
            call()
        recordings = []
        for _ in range(CALLS_RECORDED):
            communicator.barrier()
            with communicator.recording() as recording:
                call()
            recordings.append(recording)
        each = np.array([recording.duration_ns() for recording in recordings], np.float64)
        order = np.argsort(communicator.all_reduce(each, op="avg"), kind="stable")
        traces: list[Trace] = recordings[int(order[len(order) // 2])].gather()
        return traces[0].to_json().decode() if communicator.rank == 0 else None
