"""Ranks that make calls and say in which order the engine has waited and announced; see test_protocol.py."""

from __future__ import annotations

import numpy as np

import farandole
from farandole.algorithms import REGISTRY
from farandole.run.call import Call

SLOT_BYTES = 8192
LENGTH = 3001  # float64: several slices for each chunk, in batches of which the last is not full
WAITED_FOR_ROOM, WAITED, STEPPED, ANNOUNCED = range(4)
Event = tuple[str, int, int]  # what, of which rank or stage, in which slice


def calls(ranks: int) -> list[Call]:
    """A call of every algorithm."""
    made = []
    for collective, name in sorted(REGISTRY):
        blocks = {"all_gather": ranks, "gather": ranks, "scatter": ranks, "reduce_scatter": ranks}.get(collective, 1)
        counts = (LENGTH,) * (ranks * ranks if collective == "all_to_all" else blocks)
        op = "sum" if collective in {"all_reduce", "reduce", "reduce_scatter"} else ""
        if collective == "barrier":
            made.append(Call(collective, name, (0,) * ranks, "", 1, "", 0))
        else:
            made.append(Call(collective, name, counts, "float64", 8, op, 0))
    return made


def what_the_engine_did() -> list[tuple[str, str, int, list[Event]]]:
    """For each call, its collective, algorithm and slices, and what this rank waited for and announced, in order."""
    told = []
    with farandole.init(slot_bytes=SLOT_BYTES, timeout_s=20) as c:
        engine = c.engine
        assert engine is not None
        for call in calls(c.size):
            planned = engine.planned(call)
            source = np.arange(planned.input_bytes // 8 + 1, dtype=np.float64)
            target = np.zeros(planned.output_bytes // 8 + 1)
            packed = engine.run_traced(planned, source.ctypes.data, target.ctypes.data, 20)
            waits = engine.tables(planned).waits.ravel().tolist()
            events: list[Event] = []
            for did, index, slice_, _, _ in np.frombuffer(packed, np.int64).reshape(-1, 5).tolist():
                if did == WAITED_FOR_ROOM:
                    events.append(("reuse", index, slice_))
                elif did == WAITED:
                    events.append(("wait", waits[index], slice_))
                elif did == ANNOUNCED:
                    events.append(("announce", index, slice_))
            told.append((call.collective, call.algorithm_name, planned.layout.slices, events))
    return told
