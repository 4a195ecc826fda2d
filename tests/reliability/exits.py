"""End two ranks in every state and every way, and say what became of them: JSON on standard output.

A cell is a state in which both ranks are when they end, and a way to end. Each is a pair of forked processes, which
end as the interpreter ends. ``python exits.py WAY...`` makes the cells of these ways.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from farandole.errors import FarandoleError
from farandole.run.communicator import Communicator
from farandole.run.start import connect

LIMIT_S = 20.0
KEPT: list[Any] = []  # what a careless program holds until the end


class EndedError(BaseException):
    """Carries a status out to where the interpreter ends."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


def _failing(call: Callable[[], object]) -> None:
    try:
        call()
    except FarandoleError:
        return
    message = "no error"
    raise AssertionError(message)


def unused(_: Communicator) -> None:
    """Made, and never used."""


def used(c: Communicator) -> None:
    """Idle, with a background thread and a thread for messages."""
    c.background.all_reduce(np.ones(10)).wait()
    c.background.send(np.ones(10), 1 - c.rank).wait()
    c.receive(np.ones(10), 1 - c.rank)


def closed(c: Communicator) -> None:
    """Closed, twice."""
    used(c)
    c.close()
    c.close()


def collective_in_flight(c: Communicator) -> None:
    """A call in the background that the other rank never joins."""
    c.all_reduce(np.ones(1))
    if c.rank == 0:
        KEPT.append(c.background.all_reduce(np.ones(100_000)))


def collective_forgotten(c: Communicator) -> None:
    """The same, and nobody holds on to it, or to the communicator."""
    c.all_reduce(np.ones(1))
    if c.rank == 0:
        c.background.all_reduce(np.ones(100_000))
    KEPT.clear()


def messages_in_flight(c: Communicator) -> None:
    """A send for which nobody has room, and a receive of what nobody sends."""
    KEPT.append(c.background.send(np.ones(100_000), 1 - c.rank))
    KEPT.append(c.background.receive(np.ones(10), 1 - c.rank, tag=7))


def mismatched(c: Communicator) -> None:
    """Broken: the ranks have made different calls."""
    _failing(lambda: c.all_reduce(np.ones(3 + c.rank)))


def late(c: Communicator) -> None:
    """Broken: a rank was late."""
    while c.rank == 1 and c.engine is not None and c.engine.flight().failure == "none":
        time.sleep(0.001)
    _failing(lambda: c.barrier(timeout_s=0.05))


def thread_in_a_call(c: Communicator) -> None:
    """A thread that does not keep the interpreter alive waits in a call that never ends."""
    c.all_reduce(np.ones(1))
    if c.rank == 0:
        started = threading.Event()

        def wait() -> None:
            started.set()
            with_error: list[object] = []
            try:
                c.all_reduce(np.ones(10))
            except FarandoleError as error:
                with_error.append(error)

        threading.Thread(target=wait, daemon=True).start()
        started.wait()


def threads_that_go_on(c: Communicator) -> None:
    """Threads that do not keep the interpreter alive come back from one call after another while it ends."""
    work = c.background.all_reduce(np.ones(1))
    work.wait()

    def ask() -> None:
        while True:
            work.wait()

    for _ in range(2):
        threading.Thread(target=ask, daemon=True).start()


def forked(c: Communicator) -> None:
    """A child of the rank has inherited the communicator, and ends as well."""
    used(c)
    child = os.fork()
    if child == 0:
        raise EndedError(0)
    assert os.waitpid(child, 0)[1] == 0


STATES = (
    unused, used, closed, collective_in_flight, collective_forgotten, messages_in_flight, mismatched, late,
    thread_in_a_call, threads_that_go_on, forked,
)  # fmt: skip
WAYS = {"end": 0, "status": 3, "exception": 1}


def rank_of_a_cell(state: Callable[[Communicator], None], way: str, rank: int, key: str) -> None:
    """Be a rank, come into the state, and end."""
    c = connect(rank, 2, key, timeout_s=10, slot_bytes=64 << 10)
    KEPT.append(c)
    state(c)
    if way == "status":
        sys.exit(WAYS[way])
    if way == "exception":
        message = "the program's own"
        raise RuntimeError(message)


def cell(state: Callable[[Communicator], None], way: str, folder: Path) -> dict[str, Any]:
    """Make one cell; the ranks' statuses, None for one that did not end, and what they wrote."""
    key, pids = secrets.token_hex(16), []
    for rank in range(2):
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            for number in (1, 2):
                os.dup2(
                    os.open(folder / f"{state.__name__} {way} {rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), number
                )
            try:
                rank_of_a_cell(state, way, rank, key)
            except SystemExit as end:
                raise EndedError(int(end.code or 0)) from None
            except RuntimeError:
                traceback.print_exc()
                raise EndedError(1) from None
            raise EndedError(0)
        pids.append(pid)
    statuses: list[int | None] = [None, None]
    deadline = time.monotonic() + LIMIT_S
    while None in statuses and time.monotonic() < deadline:
        for rank, pid in enumerate(pids):
            if statuses[rank] is None and (ended := os.waitpid(pid, os.WNOHANG))[0]:
                statuses[rank] = os.waitstatus_to_exitcode(ended[1])
        time.sleep(0.002)
    for rank, pid in enumerate(pids):
        if statuses[rank] is None:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    written = [(folder / f"{state.__name__} {way} {rank}").read_text() for rank in range(2)]
    return {"state": state.__name__, "way": way, "statuses": statuses, "written": written}


def main() -> None:
    """Make all cells of the ways given."""
    folder = Path(tempfile.mkdtemp())  # no context: the forked ranks must not delete it
    print(json.dumps([cell(state, way, folder) for way in sys.argv[1:] or WAYS for state in STATES]))  # noqa: T201
    shutil.rmtree(folder)


if __name__ == "__main__":
    try:
        main()
    except EndedError as ended:
        sys.exit(ended.status)
