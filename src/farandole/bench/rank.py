"""What runs in each rank of each library that is compared: it waits for orders, blocked in a read, and obeys.

Orders and answers are JSON, one object a line, over a Unix socket. ``measure`` makes buffers, calls once, checks, and
says how long a call takes; ``time`` calls back to back, checks again, and lets the buffers go. Between orders
a rank uses no core, so libraries can take turns. The end of the socket is the end of the rank.

A second connection, the lifeline, carries nothing. When the other side closes it, or is gone, the kernel kills this
process, even in the middle of a call that would never return.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from farandole.bench import patterns
from farandole.bench.sessions import Call, Session, Task, open_session
from farandole.errors import UnsupportedError
from farandole.layout import split

WARM_UP = 2
COMMANDS, LIFELINE = "commands", "lifeline"


def main(folder: str, kind: str, settings: str) -> int:
    """Serve the coordinator that listens in ``folder``; ``settings`` are those of the session, as JSON."""
    lifeline = _connect(folder, LIFELINE)
    _die_with(lifeline)
    with _connect(folder, COMMANDS) as commands, commands.makefile("rb") as orders:
        try:
            session = open_session(kind, msgspec.json.decode(settings, type=dict[str, Any]))
            _answer(commands, {"rank": session.rank, "size": session.size, "version": session.version})
            server = _Server(session)
            for line in orders:
                _answer(commands, server.obey(msgspec.json.decode(line, type=dict[str, Any])))
        except Exception as error:  # noqa: BLE001 - whatever it is, the coordinator must hear of it
            _answer(commands, {"error": f"{type(error).__name__}: {error}"})
            return 1
        session.close()
    return 0


@dataclass(slots=True)
class _Prepared:
    collective: str
    length: int
    task: Task
    call: Call


class _Server:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._prepared: _Prepared | None = None

    def obey(self, order: Mapping[str, Any]) -> dict[str, Any]:
        if order["do"] == "measure":
            return self._measure(order["collective"], order["size_bytes"], order["dtype"])
        return self._time(order["repetitions"])

    def _measure(self, collective: str, size_bytes: int, dtype: str) -> dict[str, Any]:
        self._prepared = None  # the old buffers go before the new ones come
        rank, ranks = self._session.rank, self._session.size
        length = size_bytes // np.dtype(dtype).itemsize
        task = Task(
            collective,
            patterns.given(collective, ranks, rank, length, dtype),
            patterns.empty(collective, ranks, rank, length, dtype),
            np.diff(split(length, ranks)).tolist(),
        )
        try:
            call = self._session.prepare(task)
        except UnsupportedError as error:
            return {"unsupported": str(error)}
        _timed(call, 1)
        right = patterns.is_right(task.out, collective, ranks, rank, length)
        self._prepared = _Prepared(collective, length, task, call)
        times = _timed(call, WARM_UP)
        return {"right": right, "time_s": min(times), "detail": self._session.detail()}

    def _time(self, repetitions: int) -> dict[str, Any]:
        prepared = self._prepared
        assert prepared is not None  # the coordinator measures first  # noqa: S101
        self._prepared = None
        prepared.task.out.fill(patterns.UNTOUCHED)
        self._session.barrier()
        _timed(prepared.call, WARM_UP)
        self._session.barrier()
        times = _timed(prepared.call, repetitions)
        rank, ranks = self._session.rank, self._session.size
        right = patterns.is_right(prepared.task.out, prepared.collective, ranks, rank, prepared.length)
        return {"right": right, "times_s": times, "line_ns": self._session.line_ns()}


def _timed(call: Call, repetitions: int) -> list[float]:
    clock, (action, before) = time.perf_counter, call
    times = []
    for _ in range(repetitions):
        if before is not None:
            before()
        start = clock()
        action()
        times.append(clock() - start)
    return times


def _connect(folder: str, name: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect(str(Path(folder) / name))
    return made


def _die_with(lifeline: socket.socket) -> None:
    descriptor = lifeline.fileno()
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)


def _answer(commands: socket.socket, answer: dict[str, Any]) -> None:
    commands.sendall(msgspec.json.encode(answer) + b"\n")
