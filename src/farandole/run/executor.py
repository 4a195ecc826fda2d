"""Carries out requests: chooses the algorithm, brings arrays into the form the engine needs, runs the call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from farandole.run.arrays import Array, address, readable
from farandole.run.call import Call, compiled
from farandole.run.choices import Choices
from farandole.run.engine import PLANS_KEPT, Asked, Engine, Planned
from farandole.run.requests import Place, Request
from farandole.run.shared import SHARED_FROM_BYTES, SHARING, SharedArrays
from farandole.run.work import Work
from farandole.schedule import Schedule

AUTO = "auto"
Choice = str | Schedule
CarryOut = Callable[[Planned, int, int, float], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """A request in contiguous memory. ``finish`` brings the result to the user's array, if it is elsewhere."""

    memory: Array | None
    work: Array | None
    finish: Callable[[], None] | None


class Executor:
    """Runs the requests of one rank; without an engine, in a world of one rank."""

    def __init__(
        self, place: Place, engine: Engine | None, timeout_s: float, choices: Choices, shared: SharedArrays
    ) -> None:
        """``timeout_s`` and ``choices`` are for calls that say nothing of their own."""
        self.place = place
        self.engine = engine
        self.timeout_s = timeout_s
        self.choices = choices
        self.shared = shared
        self.repeat = _never_repeated if engine is None else engine.repeat
        self._last_algorithm = ""
        self._plans: dict[object, Planned] = {}  # by what a request depends on, algorithms that were left open included
        self._recorder: CarryOut | None = None

    @property
    def is_recording(self) -> bool:
        """Whether calls are recorded."""
        return self._recorder is not None

    def record(self, recorder: CarryOut | None) -> None:
        """Have ``recorder`` carry out the calls in the foreground instead of the engine; None: no longer.

        Calls that are repeated ask nothing about it: there are none while it lasts.
        """
        self._recorder = recorder
        if self.engine is not None:
            self.engine.forget()

    @property
    def last_algorithm(self) -> str:
        """The algorithm that the last collective ran; empty before the first."""
        return self._last_algorithm if self.engine is None else self.engine.last_algorithm

    def run(
        self, request: Request, algorithm: Choice, timeout_s: float | None, asked: Asked | None = None
    ) -> Array | None:
        """Carry out a request; its target. A call that depends on nothing but ``asked`` can be repeated."""
        ready = _ready(request)
        if self.engine is None:
            self._alone(request, algorithm, ready)
        else:
            limit_s = self.timeout_s if timeout_s is None else timeout_s
            planned = self._planned(self.engine, request, algorithm, ready)
            carry_out = self._recorder or self.engine.run
            carry_out(planned, address(ready.memory), address(ready.work), limit_s)
            if asked is not None and request.scale is None and self._recorder is None:
                reads, result = request.source is not None, request.target
                self.engine.remember(asked, planned, self.timeout_s, reads=reads, result=result)
        if ready.finish is not None:
            ready.finish()
        return request.target

    def start(self, request: Request, algorithm: Choice, timeout_s: float | None) -> Work[Array | None]:
        """Carry out a request in the background."""
        engine, ready = self.engine, _ready(request)
        if engine is None:
            self._alone(request, algorithm, ready)
            if ready.finish is not None:
                ready.finish()
            return Work(None, lambda: request.target)
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        planned = self._planned(engine, request, algorithm, ready)
        # The engine brings the result to the user's array before anyone can see that the call is done.
        work = engine.start(planned, address(ready.memory), address(ready.work), limit_s, ready, ready.finish)
        return Work(work, lambda: request.target, lambda failure, peer: engine.error(failure, peer, limit_s))

    def close(self, drain_s: float, ending: str = "") -> None:
        """Let calls in flight end, for no longer than ``drain_s``, and give back what this rank holds.

        ``ending`` is the name of the exception that is the reason, if one is.
        """
        if self.engine is not None:
            self.engine.close(drain_s, ending)

    def _alone(self, request: Request, algorithm: Choice, ready: _Ready) -> None:
        """What every collective does in a world of one rank; an algorithm that does not exist is an error there too."""
        if algorithm != AUTO:
            self._last_algorithm = compiled(request.collective, algorithm, 1, request.root)[0].name
        if ready.work is not None and ready.memory is not None and ready.work is not ready.memory:
            ready.work.reshape(-1)[...] = ready.memory.reshape(-1)

    def _planned(self, engine: Engine, request: Request, algorithm: Choice, ready: _Ready) -> Planned:
        dtype = request.dtype
        memory = None
        if request.collective in SHARING and sum(request.counts) * request.itemsize >= SHARED_FROM_BYTES:
            memory = self.shared.find(ready.memory, ready.work)
            if memory is not None and memory.in_place and request.collective != "all_reduce":
                memory = None  # only rank 0's part of its output begins where the output does
        key = (request.collective, algorithm, request.counts, dtype, request.op, request.root, memory)
        planned = self._plans.get(key)
        if planned is None:
            itemsize = request.itemsize
            if algorithm == AUTO:
                algorithm = self.choices.algorithm(request.collective, request.counts, itemsize)
            name = "" if dtype is None else dtype.name
            call = Call(request.collective, algorithm, request.counts, name, itemsize, request.op, request.root, memory)
            planned = engine.planned(call)
            if len(self._plans) >= PLANS_KEPT:
                self._plans.clear()
            self._plans[key] = planned
        engine.last_algorithm = planned.algorithm
        return planned


def _never_repeated(*_: object) -> object:
    return NotImplemented


def _ready(request: Request) -> _Ready:
    source, target = request.source, request.target
    if source is not None and request.scale is not None:
        source = source * source.dtype.type(request.scale)
    if target is None or target.flags.c_contiguous:
        memory = None if source is None else readable(source, target, request.in_place)
        return _Ready(memory, target, None)
    work = np.empty(target.shape, target.dtype)
    if source is request.source and source is target:
        work[...] = target  # in place: the call works on the copy, and only the result comes back
        source = work

    def finish() -> None:
        target[...] = work

    return _Ready(None if source is None else readable(source, work, request.in_place), work, finish)
