"""What the ranks of the tests of faults do, each in a process of its own."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import farandole
from farandole.errors import FarandoleError, MismatchError

TIMEOUT_S = 20.0
LARGE = 200_000  # elements: far more than a pipe holds


def _init(**settings: Any) -> farandole.Communicator:
    return farandole.init(**{"timeout_s": TIMEOUT_S, **settings})


def _error(call: Callable[[], object]) -> tuple[str, Any]:
    try:
        call()
    except FarandoleError as error:
        return type(error).__name__, error.facts.get("peer")
    return "", None


def _while_stopped(pid: int) -> None:
    """Wait until a process is stopped."""
    while open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "T":  # noqa: PTH123, SIM115
        os.sched_yield()


def calls_without_data_do_not_let_a_rank_run_away() -> None:
    """Rank 0 has nothing to wait for; the others come to its broadcast after many more calls."""
    with _init() as c:
        for k in range(5):
            value = np.array([k if c.rank == 0 else -1])
            if c.rank:
                time.sleep(0.02)  # not to wait for anything: to let rank 0 run away, if it can
            c.broadcast(value, 0)
            for _ in range(9):
                c.all_reduce(np.empty(0))
            assert value[0] == k


def a_mismatch_that_is_noticed_a_call_later() -> str:
    """Both ranks take themselves for the root, need nothing of each other, and go on; the error's message."""
    with _init() as c:
        c.broadcast(np.ones(5), c.rank)
        try:
            c.all_reduce(np.ones(3))
        except MismatchError as error:
            return str(error)
    return ""


def many_calls_ahead(odd: int) -> str:
    """The root makes 32 broadcasts before the others begin; one of those makes another call in place of number ``odd``.

    The error's message, or what is wrong with what arrived.
    """
    calls, word = 32, np.ones(1)
    with _init() as c:
        try:
            if c.rank > 0:
                c.receive(word, 0)
            for call in range(1, calls + 1):
                if c.rank == 1 and call == odd:
                    c.all_gather(np.ones(3))
                mine = np.full(3, call if c.rank == 0 else -1)
                c.broadcast(mine)
                if mine.tolist() != [call] * 3:
                    return f"broadcast {call} gave {mine.tolist()}"
            for peer in range(1, c.size if c.rank == 0 else 0):
                c.send(word, peer)
            c.barrier()
        except MismatchError as error:
            return str(error)
    return ""


def different_calls_without_data() -> tuple[str, Any]:
    """Calls that move nothing are calls all the same."""
    with _init() as c:
        first = _error(lambda: c.all_reduce(np.empty(0)) if c.rank else c.all_gather(np.empty(0)))
        return first if first[0] else _error(lambda: c.all_reduce(np.ones(3)))


def the_one_that_all_wait_for_is_blamed() -> tuple[str, Any]:
    """In a ring, the rank that is waited for is most often waiting itself."""
    with _init(timeout_s=0.5) as c:
        c.barrier(timeout_s=TIMEOUT_S)
        while c.rank == 1 and c.engine is not None and c.engine.flight().failure == "none":
            time.sleep(0.001)
        return _error(lambda: c.all_reduce(np.ones(16), algorithm="ring"))


def a_message_that_comes_after_its_receive_was_given_up() -> bool:
    """It was being set aside when a receive asked for it in vain; the rest of it must not touch the array."""
    with _init() as c:
        if c.rank == 0:
            c.background.send(np.arange(LARGE) + 1, 1, tag=7)  # its beginning fills the pipe
            c.receive(np.empty(1), 1, tag=1)
            return True
        first = _error(lambda: c.receive(np.empty(1), 0, tag=99, timeout_s=0.3))
        room = np.zeros(LARGE, np.int64)
        c.receive(room, 0, tag=7)
        c.send(np.ones(1), 0, tag=1)
        return first[0] == "TimeLimitError" and bool((room == np.arange(LARGE) + 1).all())


def a_receive_of_half_a_message_ends_when_the_communicator_is_closed() -> Any:
    """The sender is stopped in the middle of it."""
    c = _init()
    if c.rank == 0:
        pid = int(_exchange(c, os.getpid()))
        work = c.background.send(np.arange(1 << 22), 1, tag=7)
        _exchange(c, 0)
        os.kill(pid, 0)
        time.sleep(0.5)
        outcome = _error(work.wait)
        c.close()
        return outcome[0] in {"", "ClosedError", "TimeLimitError"}
    pid = int(_exchange(c, os.getpid()))
    _exchange(c, 0)
    waiting = c.background.receive(np.empty(1), 0, tag=99)  # so that what comes is set aside
    os.kill(pid, signal.SIGSTOP)
    _while_stopped(pid)
    room = np.zeros(1 << 22, np.int64)
    wanted = c.background.receive(room, 0, tag=7)
    try:
        c.close(0)
        outcomes = []
        for each in (waiting, wanted):
            try:
                each.wait(5)
                outcomes.append("")
            except TimeoutError:
                outcomes.append("hangs")
            except FarandoleError as error:
                outcomes.append(type(error).__name__)
        return outcomes
    finally:
        os.kill(pid, signal.SIGCONT)


def _exchange(c: farandole.Communicator, mine: int) -> int:
    """The other of two ranks' number."""
    return int(c.all_gather(np.array([mine]))[1 - c.rank])


def a_call_of_another_thread_ends_when_the_communicator_is_closed() -> Any:
    """A collective and a receive, both in the foreground, that would wait for rank 1 for long."""
    c = _init()
    c.barrier()
    if c.rank:
        return _error(lambda: c.receive(np.empty(1), 0, tag=3))
    outcomes: dict[str, tuple[str, Any]] = {}
    calls = {"collective": c.barrier, "receive": lambda: c.receive(np.empty(1), 1)}
    threads = [
        threading.Thread(target=lambda name=name, call=call: outcomes.update({name: _error(call)}))
        for name, call in calls.items()
    ]
    for thread in threads:
        thread.start()
    while c._executor.engine._runner.call < 2:  # type: ignore[union-attr]
        os.sched_yield()
    c.close(0)
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
    return [outcomes[name][0] for name in calls]


def a_send_in_the_background_ends_before_closing() -> Any:
    """Closing lets calls in flight end; messages are calls too."""
    c = _init()
    room = np.zeros(LARGE, np.int64)
    if c.rank == 0:
        c.background.send(np.arange(LARGE), 1)
        c.close()
        return True
    time.sleep(0.1)
    c.receive(room, 0)
    c.close()
    return bool((room == np.arange(LARGE)).all())


def what_was_sent_before_closing_arrives() -> int:
    """Many communicators, so that closing meets every moment of the receive."""
    with _init() as c:
        arrived = 0
        for _ in range(100):
            part = c.split(0)
            assert part is not None
            if part.rank == 0:
                part.send(np.array([1]), 1)
            else:
                room = np.zeros(1, np.int64)
                part.receive(room, 0)
                arrived += int(room[0])
            part.close()
        return arrived


def a_strided_result_is_there_when_wait_returns() -> int:
    """The copy to the user's array is part of the call."""
    wrong = 0
    with _init() as c:
        for k in range(200):
            array = np.full((3000, 2), c.rank + k)
            c.background.all_reduce(array[:, 0]).wait()
            wrong += int((array[:, 0] != sum(r + k for r in range(c.size))).any())
    return wrong


def a_forgotten_communicator_is_closed() -> Any:
    """With a call in flight, whose memory must not go before the call; no descriptor stays."""
    with _init() as c:
        c.barrier()
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        for k in range(10):
            part = c.split(0)
            assert part is not None
            if part.rank == 0:
                part.background.all_reduce(np.ones(100_000 + k))
                del part
            else:
                answer = _error(partial(part.all_reduce, np.ones(100_000 + k), timeout_s=5))
                assert answer[0] in {"CommunicationError", "ClosedError", ""}, answer  # or it was done in time
                del part
            gc.collect()
        return len(os.listdir("/proc/self/fd")) - before  # noqa: PTH208


def a_forked_child_lets_go_of_what_it_inherited() -> int:
    """There were threads in the communicator, which it does not have."""
    c = _init()
    c.background.barrier().wait()
    c.background.send(np.ones(1), (c.rank + 1) % c.size)
    c.receive(np.empty(1))
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)  # rather that than a child that hangs
        c.close()
        del c
        gc.collect()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    c.barrier()
    c.close()
    return status


def exits_with_a_daemon_thread_in_a_call() -> None:
    """The result is the exit status."""
    c = _init()
    c.barrier()
    threading.Thread(target=lambda: _error(lambda: c.receive(np.empty(1))), daemon=True).start()
    threading.Thread(
        target=lambda: _error(c.barrier if c.rank == 0 else lambda: c.receive(np.empty(1))), daemon=True
    ).start()
    time.sleep(0.05)


def a_signal_handler_may_close() -> str:
    """While its own thread waits in a call."""
    c = _init()
    c.barrier()
    if c.rank:
        return _error(c.barrier)[0] and "ended"
    signal.signal(signal.SIGUSR1, lambda *_: c.close())
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
    return _error(lambda: c.receive(np.empty(1), 1))[0] and _error(c.barrier)[0] and "ended"


def a_signal_handler_may_close_in_a_collective() -> str:
    """As above."""
    c = _init()
    c.barrier()
    if c.rank:
        time.sleep(1)
        return _error(c.barrier)[0] and "ended"
    signal.signal(signal.SIGUSR1, lambda *_: c.close())
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
    return _error(c.barrier)[0] and "ended"
