"""One rank of a run of the fault campaign: makes the calls, checks what they return, and tells what it got."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fault_plans import ROOTED, Call, Run, changed

from farandole.errors import CommunicationError
from farandole.run.communicator import Communicator
from farandole.run.start import connect

MEETING_S, SHORT_MEETING_S = 30.0, 5.0


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
    total = given[0].copy()
    for other in given[1:]:
        total = {"sum": np.add, "max": np.maximum, "min": np.minimum}[call.op](total, other)
    if call.collective == "reduce_scatter":
        return np.array_split(total, ranks)[rank]
    return total


def start(c: Communicator, call: Call, number: int) -> Callable[[], Any]:
    """Begin a call, or make it; what is returned waits for it, and returns its result."""
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


def want(call: Call, c: Communicator, number: int) -> Any:
    """What ``start`` must return in the end."""
    if call.collective == "exchange":
        return values(call, (c.rank - 1) % c.size, number)
    return expected(call, c.rank, c.size, number)


def play(run: Run, rank: int, key: str, tell: Callable[..., None]) -> None:
    """Be one rank of a run. Calls in the background are waited for two calls later."""
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    held = _held()
    meeting_s = SHORT_MEETING_S if run.kind == "kill in the meeting" else MEETING_S
    try:
        c = connect(
            rank, run.ranks, key, timeout_s=run.timeout_s, slot_bytes=run.slot_bytes, meeting_timeout_s=meeting_s
        )
    except CommunicationError as error:
        _tell_error(tell, error)
        tell("held", before=held, after=_held())
        return
    is_victim = rank == run.victim
    waiting: list[tuple[int, Call, Callable[[], Any]]] = []

    def settle(most: int) -> None:
        while len(waiting) > most:
            number, call, wait = waiting.pop(0)
            got, right = wait(), want(call, c, number)
            if (got is None) != (right is None) or (right is not None and not np.array_equal(got, right)):
                tell("lie", call=number, text=str(call))

    try:
        tell("ready")
        for number, call in enumerate(run.calls):
            mine = call
            if is_victim and number == run.at:
                mine = _befall(run, c, call)
            waiting.append((number, mine, start(c, mine, number)))
            settle(2)
        settle(0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it comes too late to befall anything
        tell("through")
    except CommunicationError as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _tell_error(tell, error)
    except KeyboardInterrupt:
        tell("interrupted")
    finally:
        c.close(0.0 if run.seed % 2 else 5.0)
    waiting.clear()
    tell("held", before=held, after=_held())


def _tell_error(tell: Callable[..., None], error: CommunicationError) -> None:
    facts = {name: error.facts.get(name) for name in ("rank", "peer", "first", "pid", "missing", "states")}
    tell("error", error=type(error).__name__, message=str(error), at=time.monotonic(), **facts)


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
        raise RuntimeError("the victim's own")
    elif run.kind == "close":
        c.background.all_reduce(np.ones(100_000))
        c.close(0.0 if run.seed % 3 else 0.2)
    return call


def _held() -> list[Any]:
    """The descriptors and threads of this process."""
    descriptors = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            descriptors.append(str(entry.readlink()))
    return [sorted(d for d in descriptors if "/proc/" not in d), len(list(Path("/proc/self/task").iterdir()))]
