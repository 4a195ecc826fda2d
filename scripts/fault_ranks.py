"""One rank of a run of the fault campaign: makes the calls, checks what they return, and tells what it got."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fault_plans import ROOTED, Call, Run, changed, fitting

from farandole.errors import CommunicationError
from farandole.run.communicator import Communicator
from farandole.run.start import connect

MEETING_S, SHORT_MEETING_S = 30.0, 3.0
LINGER_S = 1.5

Tell = Callable[..., None]


def values(call: Call, rank: int, number: int, parts: int = 1) -> Any:
    """What a rank puts into a call: it depends on the rank, the call and the position."""
    return ((np.arange(call.length * parts) * 7 + rank * 13 + number * 5) % 31).astype(call.dtype)


def expected(call: Call, rank: int, ranks: int, number: int) -> Any:
    """What a rank must get out of it; None for nothing."""
    if call.collective == "barrier" or (call.collective in {"reduce", "gather"} and rank != call.root):
        return None
    if call.collective == "broadcast":
        return values(call, call.root, number)
    if call.collective == "scatter":
        whole = values(call, call.root, number, ranks)
        return whole[rank * call.length : (rank + 1) * call.length]
    if call.collective == "all_to_all":
        given = [values(call, r, number, ranks) for r in range(ranks)]
        return np.concatenate([g[rank * call.length : (rank + 1) * call.length] for g in given])
    given = [values(call, r, number) for r in range(ranks)]
    if call.collective in {"gather", "all_gather"}:
        return np.concatenate(given)
    total = combined(call, given)
    return np.array_split(total, ranks)[rank] if call.collective == "reduce_scatter" else total


def combined(call: Call, given: Sequence[Any]) -> Any:
    """What ranks that give this have together."""
    return functools.reduce({"sum": np.add, "max": np.maximum, "min": np.minimum}[call.op], given)


def start(c: Communicator, call: Call, number: int) -> Callable[[], Any]:
    """Begin a call in the background, or make it; what is returned waits for it, and returns its result."""
    if call.collective == "exchange":
        right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
        sent = c.background.send(values(call, c.rank, number), right, tag=number)
        room = np.empty(call.length, call.dtype)
        received = c.background.receive(room, left if number % 2 else None, tag=number)

        def both() -> Any:
            received.wait()
            sent.wait()
            return room

        return both
    if call.collective in {"split", "shared"}:
        answer = (_in_a_part if call.collective == "split" else _in_shared_memory)(c, call, number)
        return lambda: answer
    where: Any = c.background if call.is_background else c
    if call.collective == "barrier":
        answer = where.barrier(algorithm=call.algorithm)
    else:
        array = values(call, c.rank, number, c.size if call.collective in {"all_to_all", "scatter"} else 1)
        more: dict[str, Any] = {"algorithm": call.algorithm}
        if call.collective == "scatter" and c.rank != call.root:
            array, more["out"] = None, np.empty(call.length, call.dtype)
        if call.op:
            more["op"] = call.op
        if call.collective in ROOTED:
            more["root"] = call.root
        answer = getattr(where, call.collective)(array, **more)
    return answer.wait if call.is_background else lambda: answer


def _in_a_part(c: Communicator, call: Call, number: int) -> Any:
    """Sum over every second rank."""
    part: Any = c.split(c.rank % 2, -c.rank)
    try:
        return part.all_reduce(values(call, c.rank, number), call.op)
    except CommunicationError as error:  # which says what the ranks are called in the part
        for name in ("rank", "peer", "first"):
            if (error.facts.get(name) or 0) >= 0 and name in error.facts:
                error.facts[name] = part.parent_ranks[error.facts[name]]
        raise
    finally:
        part.close(0.0)


def _in_shared_memory(c: Communicator, call: Call, number: int) -> Any:
    array = c.empty(call.length, call.dtype)
    array[:] = values(call, c.rank, number)
    return c.all_reduce(array, call.op).copy()


def want(call: Call, c: Communicator, number: int) -> Any:
    """What ``start`` must return in the end."""
    if call.collective == "exchange":
        return values(call, (c.rank - 1) % c.size, number)
    if call.collective in {"split", "shared"}:
        step = 2 if call.collective == "split" else 1
        return combined(call, [values(call, r, number) for r in range(c.rank % step, c.size, step)])
    return expected(call, c.rank, c.size, number)


def make(c: Communicator, calls: Sequence[Call], tell: Tell, befall: Callable[[int, Call], Call]) -> None:
    """Make calls; those in the background are waited for two calls later.

    Whatever comes back is checked at once, and when a call has failed, what those before it have to show as well.
    """
    waiting: list[tuple[int, Call, Callable[[], Any]]] = []

    def check(number: int, call: Call, wait: Callable[[], Any]) -> None:
        got, right = wait(), want(call, c, number)
        if (got is None) != (right is None) or (right is not None and not np.array_equal(got, right)):
            tell("lie", call=number, text=str(call))

    try:
        for number, call in enumerate(calls):
            mine = befall(number, call)
            wait = start(c, mine, number)
            if mine.is_background or mine.collective == "exchange":
                waiting.append((number, mine, wait))
            else:
                check(number, mine, wait)
            while len(waiting) > 2:
                check(*waiting.pop(0))
        while waiting:
            check(*waiting.pop(0))
    except CommunicationError as error:
        error.facts["at"] = time.monotonic()  # what is checked now may take longer than hearing of it did
        while waiting:
            with contextlib.suppress(CommunicationError):
                check(*waiting.pop(0))
        raise


def play(run: Run, rank: int, key: str, tell: Tell) -> None:
    """Be one rank of a run."""
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    held = _held()
    met = _met(run, rank, key, tell)
    if met is None:
        tell("held", before=held, after=_held())
        return
    c = met

    def befall(number: int, call: Call) -> Call:
        return _befall(run, c, call) if rank == run.victim and number == run.at else call

    try:
        tell("ready")
        if run.doomed:
            c = _go_on(run, c, tell)
        else:
            make(c, run.calls, tell, befall)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it comes too late to befall anything
            tell("through")
    except CommunicationError as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _tell_error(tell, error, range(run.ranks))
    except KeyboardInterrupt:
        tell("interrupted")
    finally:
        c.close(0.0 if run.seed % 2 else 5.0)
    tell("held", before=held, after=_held())


def _met(run: Run, rank: int, key: str, tell: Tell) -> Communicator | None:
    """The communicator, if there is one."""
    meeting_s = SHORT_MEETING_S if run.kind.endswith("in the meeting") else MEETING_S
    try:
        if run.kind == "interrupt in the meeting":
            tell("comes")
        return connect(
            rank, run.ranks, key, timeout_s=run.timeout_s, slot_bytes=run.slot_bytes, meeting_timeout_s=meeting_s
        )
    except CommunicationError as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _tell_error(tell, error, range(run.ranks))
    except KeyboardInterrupt:
        tell("interrupted")
        time.sleep(LINGER_S)  # so that it is not the end of its process that the others hear of
    return None


def _go_on(run: Run, c: Communicator, tell: Tell) -> Communicator:
    """Make calls until whoever is to be killed has been, and shrink after every error; then make each once more."""
    names: Sequence[int] = range(run.ranks)  # what each rank of the communicator was called at first
    while {*run.doomed} & {*names}:
        try:
            while True:
                make(c, [fitting(call, c.size) for call in run.calls], tell, lambda _, call: call)
        except CommunicationError as error:
            _tell_error(tell, error, names)
        c = c.shrink()
        names = [names[rank] for rank in c.parent_ranks]
    make(c, [fitting(call, c.size) for call in run.calls], tell, lambda _, call: call)
    tell("through", ranks=list(names))
    return c


def _tell_error(tell: Tell, error: CommunicationError, names: Sequence[int]) -> None:
    facts = {name: error.facts.get(name) for name in ("rank", "peer", "first", "pid", "missing", "states")}
    for name in ("rank", "peer", "first"):
        rank = facts[name]
        facts[name] = names[rank] if rank is not None and rank >= 0 else rank
    at = error.facts.get("at", time.monotonic())
    tell("error", error=type(error).__name__, message=str(error), at=at, names=list(names), **facts)


def _befall(run: Run, c: Communicator, call: Call) -> Call:
    if run.kind.startswith("another "):
        return changed(call, run.kind.removeprefix("another "), run.ranks)
    if run.kind == "one call more":
        c.all_gather(np.arange(3, dtype=np.uint16))
    elif run.kind == "late":
        time.sleep(4 * run.timeout_s)  # the others may be late themselves, where machines are busy
    elif run.kind == "exit":
        os._exit(7)
    elif run.kind == "exception":
        with c:
            raise RuntimeError("the victim's own")
    elif run.kind == "close":
        c.background.all_reduce(np.ones(100_000))
        c.close(0.0 if run.seed % 3 else 0.2)
    return call


def _held() -> list[Any]:
    """The descriptors and threads of this process."""
    gc.collect()
    descriptors = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            descriptors.append(str(entry.readlink()))
    return [sorted(d for d in descriptors if "/proc/" not in d), len(list(Path("/proc/self/task").iterdir()))]
