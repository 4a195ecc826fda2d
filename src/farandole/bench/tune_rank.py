"""What the ranks of ``farandole tune`` do: contests of algorithms, one collective and size after the other.

A contest goes in rounds. In each, every algorithm that is still in it has a turn: the ranks meet in a barrier, and then
call it back to back, often enough for the clock. A turn's time is the mean of what a call took on each rank. The turns'
order is another one in each round. Who never comes near the fastest leaves the contest.

All contests are held in a few parts, one after the other, so that a machine that is another one for a while, as virtual
machines are, is seen as both: then what wins on one alone does not win. Before the first contest the ranks call for a
while and nothing counts: the system needs that to spread new processes over the cores.

The time that is given for all contests is shared out by weight as they go; what one does not need goes to those after
it. Whatever decides how the ranks go on is computed from numbers that all of them have in common.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from farandole.bench.calls import CALLS, Array, Prepared, Trial, buffers
from farandole.bench.contest import hopeless
from farandole.bench.data import expected
from farandole.errors import CommunicationError
from farandole.ops import find_dtype
from farandole.run.communicator import Communicator
from farandole.run.start import init
from farandole.units import format_size

DTYPE = "float32"
PARTS = 3
MOST_ROUNDS = 15  # over all parts
DROP_FROM_ROUND = 3
_SHORTEST_TURN_S, _LONGEST_TURN_S = 1e-3, 20e-3
_MOST_REPETITIONS = 1 << 14
_WARM_UP_S, _WARM_UP_SHARE = 0.4, 0.05  # and of the time
_TURNS_SHARE = 0.6  # of the time; the rest goes to first calls, checks and barriers
_COMPARED_WITH_NUMPY_BYTES = 1 << 20  # longer results are compared with the first algorithm's

Times = dict[str, list[float]]


def run_contests(
    contests: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], budget_s: float, progress: Callable[[Any], None]
) -> list[Times]:
    """The times of each contest by algorithm, in seconds a call by round, after about ``budget_s`` seconds in all.

    A contest is a ``collective``, ``size_bytes``, the ``algorithms`` with the default first, and a ``weight``.
    ``settings`` go to ``init``. Raises CommunicationError where a result is wrong.
    """
    with init(**settings) as communicator:
        begin = time.monotonic()
        _warm_up(communicator, min(_WARM_UP_S, _WARM_UP_SHARE * budget_s))
        left = PARTS * sum(contest["weight"] for contest in contests)
        found: list[Times] = [{name: [] for name in contest["algorithms"]} for contest in contests]
        standing = [list(contest["algorithms"]) for contest in contests]
        for _ in range(PARTS):
            for contest, names, times in zip(contests, standing, found, strict=True):
                size = format_size(contest["size_bytes"])
                progress(f"{contest['collective']} of {size} on {communicator.size} ranks")
                remaining_s = max(budget_s - (time.monotonic() - begin), 0.0)
                share_s = _said_by_first(communicator, remaining_s * contest["weight"] / left)
                left -= contest["weight"]
                _hold_part(communicator, contest, share_s, names, times)
    return found


def _warm_up(c: Communicator, duration_s: float) -> None:
    begin = time.monotonic()
    while _said_by_first(c, float(time.monotonic() - begin < duration_s)):
        _turn(c, c.barrier, 100)


def _hold_part(c: Communicator, contest: Mapping[str, Any], share_s: float, standing: list[str], times: Times) -> None:
    """Add the ``times`` of some rounds of those that are ``standing``, and take out who leaves."""
    if len(standing) == 1:
        return
    begin = time.monotonic()
    default = standing[0]
    most = MOST_ROUNDS // PARTS
    last = len(times[default]) + most
    calls = _prepared(c, contest["collective"], contest["size_bytes"], standing)
    turn_s = min(max(_TURNS_SHARE * share_s / (most * len(standing)), _SHORTEST_TURN_S), _LONGEST_TURN_S)
    repetitions = {name: _repetitions(c, call, turn_s) for name, call in calls.items()}
    is_over = False
    while not is_over:
        number = len(times[default])
        turns = standing[number % len(standing) :] + standing[: number % len(standing)]
        if number % 2:
            turns.reverse()  # so that each has each of the others before it
        each = _agreed(c, [_turn(c, calls[name], repetitions[name]) for name in turns])
        for name, time_s in zip(turns, each, strict=True):
            times[name].append(time_s)
        if number + 1 >= DROP_FROM_ROUND:
            gone = hopeless({name: times[name] for name in standing}, default)
            standing[:] = [name for name in standing if name not in gone]
        late = _said_by_first(c, float(time.monotonic() - begin >= share_s))
        is_over = number + 1 >= last or len(standing) == 1 or bool(late)


def _prepared(
    c: Communicator, collective: str, size_bytes: int, names: Sequence[str]
) -> dict[str, Callable[[], object]]:
    """The calls, each of which has been made once, with a right result."""
    length = size_bytes // find_dtype(DTYPE).itemsize
    trial = Trial(collective, names[0], size_bytes, DTYPE)
    made = buffers(c, trial, length)
    want: Array | None = None
    if size_bytes <= _COMPARED_WITH_NUMPY_BYTES:
        want = expected(collective, c.size, c.rank, length, dtype=DTYPE, op=trial.op, root=trial.root)
    calls, wrong = {}, []
    for name in names:
        call, result = prepared = CALLS[collective](c, trial, name, made)
        _erase(prepared, made.given)
        call()
        if want is None and result is not None:
            want = result.copy()
        wrong.append(want is not None and (result is None or not np.array_equal(result, want)))
        calls[name] = call
    for name, is_wrong in zip(names, c.all_reduce(np.array(wrong), "max"), strict=True):
        if is_wrong:
            raise CommunicationError(
                f"{collective} by {name} on {c.size} ranks, {size_bytes} bytes: the result is wrong",
                algorithm=name,
                collective=collective,
                size_bytes=size_bytes,
            )
    return calls


def _repetitions(c: Communicator, call: Callable[[], object], turn_s: float) -> int:
    """How many calls take about ``turn_s``; one call says little, since ranks leave a barrier at different times."""
    count = 1
    while True:
        taken_s = count * _agreed(c, [_turn(c, call, count)])[0]
        if taken_s >= turn_s / 4 or count >= _MOST_REPETITIONS:
            return max(1, round(count * turn_s / taken_s))
        count *= 4


def _erase(prepared: Prepared, given: Array) -> None:
    """What an algorithm before has left must not pass for a result of this one."""
    result = prepared[1]
    if result is not None and result is not given:
        result.fill(-1)


def _turn(c: Communicator, call: Callable[[], object], repetitions: int) -> float:
    c.barrier()
    start = time.perf_counter()
    for _ in range(repetitions):
        call()
    return (time.perf_counter() - start) / repetitions


def _agreed(c: Communicator, values: Sequence[float]) -> list[float]:
    """The mean over the ranks, the same bits on each."""
    means: list[float] = c.all_reduce(np.array(values), "avg").tolist()
    return means


def _said_by_first(c: Communicator, value: float) -> float:
    """Rank 0's value."""
    return float(c.broadcast(np.array([value]))[0])
