"""Recordings: what all ranks really did when, in the calls that they made, as traces.

The ranks of a host have one clock (CLOCK_MONOTONIC), so what they did can be set side by side. How good its times are
is measured with every recording: what a reading costs, its finest step, and whether any rank is seen to go on before
what it waited for was announced, which would mean that the clocks of two cores disagree. The sum, or that disagreement
if it is more, is the trace's ``uncertainty_ns``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole import _core, trace
from farandole.errors import ResourceError, UsageError
from farandole.layout import Layout
from farandole.run.engine import Engine, Planned
from farandole.run.executor import Executor
from farandole.run.recorded import FIELDS, Table, events
from farandole.trace import KINDS, Trace

MOST_RECORDS = 1 << 17  # of a rank in one recording: 5 MiB
_CLOCK_READS = 2000
_WAIT, _PUBLISH = KINDS.index("wait"), KINDS.index("publish")

AllGather = Callable[..., NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class _Recorded:
    planned: Planned
    records: bytes


class Recording:
    """The calls made while it is open: ``with communicator.recording() as recording``.

    Every rank opens one and makes the same calls. Calls in the background, and those of a world of one rank, which
    has no one to wait for, are not recorded.
    """

    def __init__(self, executor: Executor, all_gather: AllGather) -> None:
        """Use :meth:`farandole.Communicator.recording`."""
        self._executor = executor
        self._all_gather = all_gather
        self._calls: list[_Recorded] = []
        self._is_open = False
        self._needed = 0

    def __enter__(self) -> Recording:
        if self._executor.is_recording:
            raise UsageError("this communicator is being recorded already")
        self._executor.record(self._carry_out)
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._executor.record(None)
        self._is_open = False

    def __len__(self) -> int:
        """How many calls there are."""
        return len(self._calls)

    def duration_ns(self) -> int:
        """From when this rank began its first call to when it was done with its last, by its clock."""
        records = [np.frombuffer(call.records, np.int64).reshape(-1, 5) for call in self._calls]
        times = [(table[0, 3], table[-1, 4]) for table in records if len(table)]
        return int(times[-1][1] - times[0][0]) if times else 0

    def gather(self) -> list[Trace]:
        """The traces of the calls, the same on all ranks. Every rank calls this, after the recording.

        Raises UsageError while the recording is open, or where ranks have made different numbers of calls;
        ResourceError where a rank has done more than a recording holds.
        """
        if self._is_open:
            raise UsageError("a recording is gathered when it is over: after the with block")
        cost_ns, step_ns = clock_quality()
        head = self._all_gather(np.array([[len(self._calls), self._needed, cost_ns, step_ns]], np.int64))
        self._check(head)
        engine = self._executor.engine
        if engine is None:
            return []
        clock_ns = int((head[:, 2] + head[:, 3]).max())
        return [self._gathered(engine, call, clock_ns) for call in self._calls]

    def _carry_out(self, planned: Planned, input_address: int, output_address: int, timeout_s: float) -> None:
        """In place of the engine's ``run``. What does not fit is carried out all the same: the others count on it."""
        engine = self._executor.engine
        if engine is None:
            return
        made = sum(len(call.records) for call in self._calls) // (5 * 8)
        self._needed = max(self._needed, made + engine.records(planned))
        if self._needed > MOST_RECORDS:
            engine.run(planned, input_address, output_address, timeout_s)
            return
        records = engine.run_traced(planned, input_address, output_address, timeout_s)
        self._calls.append(_Recorded(planned, records))

    @staticmethod
    def _check(head: Table) -> None:
        needed = int(head[:, 1].max(initial=0))
        if needed > MOST_RECORDS:
            raise ResourceError(
                f"these calls make {needed:,} records on rank {int(head[:, 1].argmax())}, and a recording holds"
                f" {MOST_RECORDS:,}; record fewer calls, or a smaller buffer",
                needed=needed,
                available=MOST_RECORDS,
            )
        counts = head[:, 0].tolist()
        if len(set(counts)) > 1:
            raise UsageError(f"the ranks have recorded different numbers of calls: {counts}", got=counts)

    def _gathered(self, engine: Engine, call: _Recorded, clock_ns: int) -> Trace:
        planned = call.planned
        mine = events(
            call.records,
            engine.tables(planned),
            planned.schedule,
            planned.layout,
            engine.rank,
            planned.call.itemsize,
        )
        counts = self._all_gather(np.array([len(mine)], np.int64))
        every = self._all_gather(mine, counts=counts.tolist())
        columns = dict(zip(FIELDS, every.T, strict=True))
        columns["rank"] = np.repeat(np.arange(engine.ranks), counts)
        disagreement_ns = disagreement(columns)
        begin = columns["start_ns"].min(initial=np.iinfo(np.int64).max) if len(every) else 0
        columns["start_ns"] = columns["start_ns"] - begin
        columns["end_ns"] = columns["end_ns"] - begin
        return trace.make(
            planned.algorithm,
            planned.schedule.collective,
            engine.ranks,
            _whole_buffer(planned.layout) * planned.call.itemsize,
            "measured",
            uncertainty_ns=max(clock_ns, disagreement_ns),
            root=planned.schedule.root,
            **columns,
        )


def _whole_buffer(layout: Layout) -> int:
    """The elements of the largest buffer of any rank, which is what the size of a call means everywhere."""
    every = range(layout.ranks)
    return max(max(layout.input_length(rank), layout.output_length(rank)) for rank in every)


def clock_quality() -> tuple[int, int]:
    """What one reading of the clock costs, and its finest step, both in nanoseconds and measured now."""
    steps = np.diff(np.array(_core.clock_steps(_CLOCK_READS), np.int64))
    return int(np.median(steps)), int(steps[steps > 0].min(initial=np.iinfo(np.int32).max))


def disagreement(columns: dict[str, Table]) -> int:
    """By how many nanoseconds a rank is seen to go on before what it waited for was announced; 0 if none is."""
    kind = columns["kind"]
    known = (kind == _PUBLISH) & (columns["round"] >= 0)
    announced = dict(
        zip(
            zip(*(columns[name][known].tolist() for name in ("rank", "round", "slice")), strict=True),
            columns["start_ns"][known].tolist(),
            strict=True,
        )
    )
    waits = (kind == _WAIT) & (columns["round"] >= 0)
    ends = zip(*(columns[name][waits].tolist() for name in ("peer", "round", "slice", "end_ns")), strict=True)
    return int(max([0, *(announced[peer, round_, slice_] - end for peer, round_, slice_, end in ends)]))
