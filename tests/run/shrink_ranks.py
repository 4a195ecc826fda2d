"""What the ranks of the tests of shrinking do, each in a process of its own."""

from __future__ import annotations

import gc
import os
import signal
import threading
from typing import Any

import numpy as np

import farandole
from farandole.errors import FarandoleError, PeerLostError
from farandole.run import roll


def _init() -> farandole.Communicator:
    return farandole.init(timeout_s=20.0)


def _facts(c: farandole.Communicator) -> Any:
    """A result that shows which ranks took part, and in which order."""
    total = c.all_reduce(np.array([10 ** c.parent_ranks[c.rank]]))
    order = c.all_gather(np.array([c.parent_ranks[c.rank]])).tolist()
    if c.size > 1:
        c.send(np.array([c.rank]), (c.rank + 1) % c.size)
        from_left = np.zeros(1, np.int64)
        c.receive(from_left, (c.rank - 1) % c.size)
        assert from_left[0] == (c.rank - 1) % c.size
    large = c.all_reduce(np.arange(300_000.0) * (c.rank + 1))
    assert (large == np.arange(300_000.0) * (c.size * (c.size + 1) // 2)).all()
    return c.rank, c.size, list(c.parent_ranks), int(total[0]), order


def _held() -> Any:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), _mappings()  # noqa: PTH208


def _mappings() -> int:
    with open("/proc/self/maps") as maps:  # noqa: PTH123
        return sum("/memfd:farandole" in line for line in maps)


def one_is_killed(victim: int, cycles: int = 1) -> Any:
    """The others go on without it; then one more is killed, as often as ``cycles`` says."""
    before = _held()
    c = _init()
    c.background.barrier().wait()
    answers = []
    for cycle in range(cycles):
        if c.rank == (victim if cycle == 0 else c.size - 1):
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                c.all_reduce(np.ones(100))
        except PeerLostError:
            c = c.shrink()
        answers.append(_facts(c))
    c.close()
    del c  # its memory is unmapped with it
    return answers, before == _held()


def one_more_dies_on_the_way() -> Any:
    """Rank 1 is killed first; rank 2 when the roll has been called, before the others have met."""
    c = _init()
    c.barrier()
    if c.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        c.barrier()
    except PeerLostError:
        if c.rank == 2:
            call = roll.call

            def call_and_die(*arguments: Any) -> Any:
                call(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)

            roll.call = call_and_die  # type: ignore[assignment]
        c = c.shrink()
    return _facts(c)


def one_does_not_come() -> Any:
    """Rank 2 is alive and does something else; then it comes after all."""
    c = _init()
    other, pair = c.split(0), c.split(0 if c.rank < 2 else None)
    assert other is not None
    if pair is None:
        other.barrier()
        return _facts(c.shrink())
    pair.barrier()
    answer = None
    try:
        c.shrink(timeout_s=1.5)
    except FarandoleError as error:
        answer = type(error).__name__, error.facts["missing"], str(error)
    other.barrier()
    return answer, _facts(c.shrink())


def nobody_died() -> Any:
    """Rank 0 shrinks although nothing is wrong, while the others wait for it in a call."""
    c = _init()
    c.barrier()
    kind = ""
    if c.rank:
        try:
            c.all_reduce(np.ones(3))
        except FarandoleError as error:
            kind = f"{type(error).__name__}: {error}"
    old, c = c, c.shrink()
    facts = _facts(c)
    old_is = repr(old)
    c.close()
    return kind, facts, old_is


def one_has_closed() -> Any:
    """Whoever has closed has gone."""
    c = _init()
    c.barrier()
    if c.rank == 0:
        c.close()
        try:
            c.shrink()
        except FarandoleError as error:
            return str(error)
    return _facts(c.shrink())


def alone() -> Any:
    """A world of one."""
    c = _init()
    return _facts(c.shrink())
