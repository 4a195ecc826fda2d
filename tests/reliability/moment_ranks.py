"""Ranks to which something happens at an awkward moment; see test_moments.py."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import farandole
from farandole.errors import CommunicationError, MismatchError, UsageError
from farandole.run import rendezvous, start, wire
from farandole.run.environment import world
from farandole.run.flight import RankFlight

SLOT_BYTES = 64 << 10
VICTIM = 1
Told = dict[str, Any]


def _init(**more: Any) -> farandole.Communicator:
    return farandole.init(**{"timeout_s": 30.0, "slot_bytes": SLOT_BYTES, **more})


def _told(call: Callable[[], object]) -> Told:
    """What a rank gets: the error, and the facts that say whom it is about."""
    try:
        call()
    except CommunicationError as error:
        facts = {name: error.facts.get(name) for name in ("rank", "peer", "pid", "first")}
        return {"error": type(error).__name__, "message": str(error), **facts}
    return {"error": ""}


def _raise() -> None:
    message = "the victim's own"
    raise RuntimeError(message)


def _die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_in_a_split(color: int) -> list[Any]:
    """The victim dies when all have said which part they want, before these have met: what the others get, and when."""
    with _init() as c:
        pids = c.all_gather(np.array([os.getpid()])).tolist()
        if c.rank == VICTIM:
            c._make_part = _die
        part = color if c.rank in {VICTIM, c.size - 1} else 0
        told = _told(lambda: c.split(part, -c.rank))
        return [told, pids[VICTIM], _told(c.barrier)["error"]]


def gone_before_a_meeting(what: str, how: str) -> Told:
    """The victim is interrupted before it comes to a meeting, and closes or ends the communicator for that reason."""
    c = _init()
    c.barrier()
    call = (lambda: c.split(0)) if what == "split" else (lambda: c.empty(1000))
    if c.rank != VICTIM:
        return _told(call)

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    c._make_part = interrupted
    c._executor.shared._meet = interrupted
    try:
        if how == "closes":
            call()
        with c:
            call()
    except KeyboardInterrupt:
        c.close(0.0)
    # As long as it is there, it is not its end that the others hear of.
    while c.engine is not None and any(rank.left == "" for rank in c.engine.flight().ranks):
        time.sleep(0.001)
    return {"error": "interrupted"}


def without_a_communicator_after_all() -> Told:
    """The ranks have met, and the victim cannot use what they have made: it asks for something else than rank 0."""
    try:
        c = _init(deterministic=os.environ["RANK"] == str(VICTIM))
    except UsageError as error:
        told: Told = {"error": type(error).__name__}
    else:
        told = _told(c.barrier)
    _init().close()  # so that it is not the end of the victim's process that the others hear of
    return told


def interrupted_when_the_ranks_have_met(where: str) -> Told:
    """An interrupt comes when all others may have gone on, and the victim goes on without a communicator."""
    place, receive, send, meet = world(os.environ), wire.receive, wire.send, rendezvous.meet
    assert place is not None
    is_victim = place.rank == VICTIM

    def receive_and_more(connection: socket.socket) -> tuple[wire.Message, int]:
        answer = receive(connection)
        if where == "a guest, told to go" and isinstance(answer[0], wire.Go):
            raise KeyboardInterrupt
        return answer

    def send_and_more(connection: socket.socket, message: wire.Message, *more: Any) -> None:
        send(connection, message, *more)
        if where == {wire.Ready: "a guest, ready", wire.Go: "the host, in between"}.get(type(message)):
            raise KeyboardInterrupt

    def meet_and_more(*arguments: Any) -> Any:
        meet(*arguments)
        raise KeyboardInterrupt

    patches = contextlib.ExitStack()
    if is_victim:
        patches.enter_context(mock.patch.object(wire, "receive", receive_and_more))
        patches.enter_context(mock.patch.object(wire, "send", send_and_more))
        if where == "a guest, at the end":
            patches.enter_context(mock.patch.object(start, "meet", meet_and_more))
    is_host = where == "the host, in between"
    me = start.connect if is_victim == is_host else _when_somebody_waits
    try:
        c = me(place.rank, place.size, f"{place.key} interrupted", timeout_s=30.0, slot_bytes=SLOT_BYTES)
    except KeyboardInterrupt:
        told: Told = {"error": "interrupted"}
    except CommunicationError as error:
        told = {"error": type(error).__name__, "message": str(error), "peer": error.facts.get("peer")}
    else:
        told = _told(c.barrier)
    patches.close()
    _init().close()  # so that it is not the end of the victim's process that the others hear of
    return told


def _when_somebody_waits(rank: int, size: int, key: str, **more: Any) -> farandole.Communicator:
    """Not as the host."""
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            if connection.connect_ex(rendezvous.address_of(key)) == 0:
                break
        os.sched_yield()
    return start.connect(rank, size, key, **more)


def killed_in_empty() -> list[Any]:
    """The victim dies when it is to map an array that all share."""
    with _init() as c:
        pids = c.all_gather(np.array([os.getpid()])).tolist()
        if c.rank == VICTIM:
            c._executor.shared._meet = _die
        return [_told(lambda: c.empty(1000)), pids[VICTIM], _told(c.barrier)["error"]]


def another_call_than_empty() -> Told:
    """One rank makes an array that all share, the others reduce one of their own."""
    with _init() as c:
        return _told(lambda: c.empty(1000) if c.rank == VICTIM else c.all_reduce(np.ones(1000)))


def a_mismatch_of_two_while_a_third_is_far_behind() -> str:
    """Two ranks take themselves for the root and go on; the third has not made a call yet when they find it out."""
    with _init() as c:
        assert c.engine is not None
        if c.rank < 2:
            c.broadcast(np.ones(5), c.rank)
        else:
            while c.engine.flight().failure == "none":
                os.sched_yield()
        try:
            c.all_reduce(np.ones(3))
        except MismatchError as error:
            return str(error)
    return ""


def a_mismatch_that_is_noticed_when_others_are_two_calls_ahead() -> str:
    """One rank takes itself for the root of the first call, and comes to its second when others are in their fourth."""
    with _init() as c:
        assert c.engine is not None
        array = np.ones(500)  # too long to be more than two calls ahead
        try:
            if c.rank == VICTIM:
                c.broadcast(array, VICTIM)
                while any(
                    not rank.calls or rank.calls[-1].number < 4 or rank.waits_for is None
                    for rank in c.engine.flight().ranks
                    if rank.rank != VICTIM
                ):
                    time.sleep(0.001)
            for _ in range(5):
                c.broadcast(array, 0)
        except MismatchError as error:
            return str(error)
    return ""


def one_is_stopped_and_another_killed() -> Told:
    """Rank 0 stops; when it has, rank 1 dies: a death is not hidden by a rank that is only late."""
    with _init() as c:
        pids = c.all_gather(np.array([os.getpid()])).tolist()
        if c.rank == 0:
            c.send(np.zeros(1), 1)
            os.kill(os.getpid(), signal.SIGSTOP)
        elif c.rank == VICTIM:
            c.receive(np.zeros(1), 0)
            while _state(pids[0]) != "T":
                time.sleep(0.001)
            _die()
        told = _told(lambda: c.all_reduce(np.ones(100_000)))
        if c.rank == c.size - 1:
            os.kill(pids[0], signal.SIGCONT)
        return {**told, "is_right": told.get("pid") == pids[VICTIM]}


def timeouts_of_a_tenth_of_a_second() -> list[Any]:
    """In a row: of calls of which one rank is late, each in a part of its own, and of messages, in one communicator."""
    outcomes: list[Any] = []
    with _init() as c:
        for _ in range(5):
            part = c.split(0)
            assert part is not None
            assert part.engine is not None
            while c.rank == VICTIM and part.engine.flight().failure == "none":
                time.sleep(0.001)
            began = time.monotonic()
            told = _told(lambda each=part: each.all_reduce(np.ones(100), timeout_s=0.1))  # type: ignore[misc]
            waited = told["first"] != c.rank or time.monotonic() - began >= 0.1  # the others hear of it from that rank
            outcomes.append([told["error"], told["peer"], waited])
            part.close()
        for _ in range(5):
            began = time.monotonic()
            told = _told(lambda: c.receive(np.ones(1), (c.rank + 1) % c.size, timeout_s=0.1))
            outcomes.append([told["error"], told["peer"], time.monotonic() - began >= 0.1])
        got = np.zeros(1)
        c.background.send(np.ones(1), (c.rank + 1) % c.size)
        c.receive(got)
        outcomes.append(float(got[0]))
        c.barrier()
    return outcomes


def killed_while_others_write_to_it(how: str) -> list[Any]:
    """The victim dies when those that have data for it wait for it to read, and one waits to read what it has."""
    large = np.ones(1 << 20)  # for which there is no room
    with _init() as c:
        assert c.engine is not None
        pids = c.all_gather(np.array([os.getpid()])).tolist()
        if c.rank == VICTIM:
            while not all(_is_waiting(rank, how) for rank in c.engine.flight().ranks if rank.rank != VICTIM):
                time.sleep(0.001)
            _die()
        calls: dict[str, Callable[[], object]] = {
            "broadcast": lambda: c.broadcast(large, 0),
            "message 0": lambda: c.send(large, VICTIM),
            "message 2": lambda: c.background.send(large, VICTIM).wait(),
            "message 3": lambda: c.receive(large, VICTIM),
        }
        return [_told(calls[how if how == "broadcast" else f"message {c.rank}"]), pids[VICTIM]]


def _is_waiting(rank: RankFlight, how: str) -> bool:
    if how == "broadcast":
        return rank.rank != 0 or rank.waits_for is not None
    return any(record.is_running for record in rank.messages)


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        return file.read().rsplit(")", 1)[1].split()[0]


def ended_by_an_exception_with_a_call_in_flight() -> Told:
    """The victim is in a call, in the background, that the others have not come to, when an exception ends it."""
    c = _init()
    c.barrier()
    engine = c.engine
    assert engine is not None
    if c.rank == VICTIM:
        try:
            with c:
                c.background.all_reduce(np.ones(100_000))
                while not engine.flight().ranks[VICTIM].calls[-1].is_running:
                    os.sched_yield()
                _raise()
        except RuntimeError:
            return {"error": "its own"}
    while engine.flight().failure == "none":
        os.sched_yield()
    return _told(lambda: c.all_reduce(np.ones(100_000)))
