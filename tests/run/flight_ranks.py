"""What the ranks of the tests of the flight recorder do, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from typer.testing import CliRunner

import farandole
from farandole.cli._app import application
from farandole.errors import FarandoleError
from farandole.run import meeting, outside
from farandole.run.verdict import ranks_of, verdict

CALLS, LONG = 150, 100_000


def _init(**settings: Any) -> farandole.Communicator:
    return farandole.init(**{"timeout_s": 20.0, **settings})


def records() -> Any:
    """Calls of many lengths, in the foreground and the background, messages, and a call of many slices."""
    with _init(slot_bytes=1 << 16) as c:
        for k in range(CALLS):
            array = np.ones(k % 100 + 1, np.float32)
            c.all_reduce(array) if k % 3 else c.background.all_reduce(array).wait()
        for k in range(80):
            if c.rank == 0:
                c.send(np.ones(k + 1), 1, tag=k)
            else:
                c.receive(np.empty(k + 1), None, tag=k)
        c.all_reduce(np.ones(LONG, np.float32), algorithm="direct")
        assert c.engine is not None
        flight = msgspec.to_builtins(c.engine.flight())
        c.barrier()
        return flight


def seen_from_outside() -> Any:
    """The last rank is stopped while the others wait for it; rank 0 looks at the job as another process would."""
    with _init() as c:
        pids = c.all_gather(np.array([os.getpid()])).tolist()
        last = c.size - 1
        c.barrier()
        if c.rank == last:
            os.kill(os.getpid(), signal.SIGSTOP)
        work = c.background.all_reduce(np.ones(1000 + c.size), algorithm="direct")
        if c.rank:
            work.wait()
            return None
        try:
            while True:
                (found,) = outside.of_process(pids[last])
                ranks = ranks_of(found.flight, found.processes)
                is_stopped = ranks[last].process.state == "T"
                if is_stopped and all(rank.waits_for == (last,) for rank in ranks[:last]):
                    break
            runner, app = CliRunner(), application()
            return {
                "pids": pids,
                "verdict": verdict(found.flight, ranks),
                "json": json.loads(runner.invoke(app, ["inspect", str(pids[1]), "--json"]).stdout),
                "all": json.loads(runner.invoke(app, ["inspect", "--all", "--json"]).stdout),
                "text": runner.invoke(app, ["inspect", str(pids[last])]).stdout,
                "top": runner.invoke(app, ["top", "--once", "--interval", "20ms"]).stdout,
            }
        finally:
            os.kill(pids[last], signal.SIGCONT)
            work.wait()


def many_communicators() -> Any:
    """More than keep a descriptor; those without are read through the process's memory."""
    meeting.MOST_KEPT = 3
    with _init(slot_bytes=4096) as c:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        parts = [c.split(0) for _ in range(6)]
        held = len(os.listdir("/proc/self/fd")) - before  # noqa: PTH208
        seen = len(outside.of_process(os.getpid()))
        c.barrier()
        for part in parts:
            assert part is not None
            part.close()
        return held, seen, len(os.listdir("/proc/self/fd")) - before  # noqa: PTH208


def one_dies(folder: str) -> Any:
    """Rank 1 is killed in the middle of a job that writes what it recorded."""
    os.environ["FARANDOLE_DUMP"] = folder
    c = _init()
    c.all_reduce(np.ones(5))
    if c.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    answers = []
    for _ in range(3):
        try:
            c.all_reduce(np.ones(7))
        except FarandoleError as error:
            answers.append((str(error), error.facts["dump"]))
    c.close()
    return answers


def one_cannot_write(folder: str) -> Any:
    """The folder is a file."""
    Path(folder).write_text("")
    return one_dies(folder)


def _leaves_by(error: BaseException) -> Any:
    """Rank 1 leaves a ``with`` block by an exception, while the others make a call."""
    with _init() as c:
        c.all_reduce(np.ones(3))
        if c.rank == 1:
            raise error
        return _error_of_all_reduce(c)


def raises_in_a_with_block() -> Any:
    """Rank 1 leaves it by an exception, and goes on."""
    try:
        return _leaves_by(KeyError(1))
    except KeyError:
        return None


def raises() -> Any:
    """Rank 1 is ended by an exception."""
    c = _init()
    c.all_reduce(np.ones(3))
    if c.rank == 1:
        raise ZeroDivisionError
    return _error_of_all_reduce(c)


def leaves_well() -> Any:
    """Rank 1 leaves by sys.exit(0)."""
    try:
        return _leaves_by(SystemExit(0))
    except SystemExit:
        return None


def _error_of_all_reduce(c: farandole.Communicator) -> Any:
    try:
        c.all_reduce(np.ones(4))
    except FarandoleError as error:
        return type(error).__name__, error.facts.get("peer"), error.facts.get("pid"), str(error)
    return None


def forks() -> Any:
    """A child uses what its parent made: each entry says so, and none hangs."""
    c = _init()
    done = c.background.all_reduce(np.ones(3))
    done.wait()
    engine = c.engine
    assert engine is not None
    going_on = c.background.all_reduce(np.ones(4)) if c.rank == 0 else None
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # rather than hang
        tries = [done.wait, c.barrier, lambda: c.background.barrier().wait(), lambda: c.send(np.ones(1), 1 - c.rank)]
        tries += [going_on.wait] if going_on else []
        wrong = sum(not _is_refused(each) for each in tries)
        memory = np.ones(4)
        sent = engine.message(receives=False, array=memory, peer=1 - c.rank, tag=0, timeout_s=1, waits=True)
        wrong += sent.verdict() != (6, -1)
        os._exit(wrong)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if c.rank:
        c.all_reduce(np.ones(4))
    elif going_on:
        going_on.wait()
    c.close()
    return status


def _is_refused(call: Any) -> bool:
    try:
        call()
    except FarandoleError as error:
        return "fork" in str(error)
    return False
