"""What the ranks of the tests of recordings do."""

from __future__ import annotations

import numpy as np

import farandole
from farandole.algorithms import REGISTRY
from farandole.bench.calls import CALLS, Trial, buffers
from farandole.errors import FarandoleError
from farandole.run import recording as recording_module


def every_algorithm(length: int) -> list[str]:
    """The traces of a call of every algorithm, recorded together, on buffers of ``length`` float32."""
    with farandole.init() as c:
        calls = []
        for collective, name in sorted(REGISTRY):
            trial = Trial(collective, name, length * 4, root=1)
            calls.append(CALLS[collective](c, trial, name, buffers(c, trial, length))[0])
        with c.recording() as recording:
            for call in calls:
                call()
        return [trace.to_json().decode() for trace in recording.gather()]


def many_slices(length: int, slot_bytes: int) -> str:
    """The trace of a ring whose buffer passes through the slots in many slices, once its result is found right."""
    with farandole.init(slot_bytes=slot_bytes) as c:
        array = np.arange(length, dtype=np.int64) * (c.rank + 1)
        with c.recording() as recording:
            c.all_reduce(array, algorithm="ring")
        assert np.array_equal(array, np.arange(length) * sum(range(1, c.size + 1)))
        return recording.gather()[0].to_json().decode()


def only_while_it_is_open() -> list[int]:
    """How many calls a recording has, of those before, in, in the background of and after it."""
    with farandole.init() as c:
        array = np.full(8, 1.0)
        c.all_reduce(array)
        c.all_reduce(array)
        with c.recording() as recording:
            c.all_reduce(array)
            c.background.all_reduce(array).wait()
        c.all_reduce(array)
        c.all_reduce(array)
        assert (array == float(c.size) ** 6).all()
        assert recording.duration_ns() > 0 or c.size == 1
        return [len(recording), len(recording.gather())]


def misused(how: str) -> list[str]:
    """The error, and what a call says afterwards."""
    said = ""
    with farandole.init() as c:
        array = np.arange(3)
        try:
            with c.recording() as recording:
                if how == "twice":
                    c.recording().__enter__()
                if how == "too much":
                    recording_module.MOST_RECORDS = 3
                c.broadcast(array, algorithm="binomial")
                if how == "different" and c.rank == 1:
                    c.broadcast(array, algorithm="binomial")
                if how == "early":
                    recording.gather()
            if how == "different" and c.rank != 1:
                c.broadcast(array, algorithm="binomial")
            recording.gather()
        except FarandoleError as error:
            said = f"{type(error).__name__}: {error}"
        return [said, str(c.all_gather(np.array([c.rank])).tolist())]
