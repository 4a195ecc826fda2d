"""The roll call: which ranks of a broken communicator are still there, with the same answer for all of them.

The rules:

- The ranks meet at a Unix socket as in :mod:`farandole.run.rendezvous`: the first to come holds the roll. Who the
  others are, the kernel says: a connection comes from a process, and the pids of all ranks are known.
- The roll is complete when each rank has come or is gone: its process has ended, or it has closed the communicator,
  after which it cannot come. So no rank that could still come is ever left out, and two groups never form.
- A rank that is alive, and does not come, is an error for all at the deadline. If the one that holds the roll dies,
  the others begin again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from farandole.errors import RendezvousError
from farandole.run import wire
from farandole.run.hosting import spell_ranks
from farandole.run.processes import NO_HANDLE, has_ended
from farandole.run.rendezvous import GRACE_S, address_of

_RETRY_S = 0.01
_LOOK_EVERY_S = 0.02  # for ranks that have closed: nothing wakes who waits for that


@dataclass(frozen=True, slots=True)
class Roster:
    """The ranks of the communicator that was: their pids and pidfds, by rank, and which of them have closed it."""

    rank: int
    pids: Sequence[int]
    handles: Sequence[int]
    has_closed: Callable[[int], bool]

    def is_gone(self, rank: int) -> bool:
        """Whether a rank can no longer come."""
        handle = self.handles[rank]
        if handle != NO_HANDLE:
            return has_ended(handle) or self.has_closed(rank)
        try:
            os.kill(self.pids[rank], 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # the pid is another user's process by now
            return True
        return self.has_closed(rank)


def call(roster: Roster, key: str, deadline: float, timeout_s: float) -> wire.Roll:
    """The ranks that are there, and a word that only they know.

    Raises RendezvousError, with the fact ``missing``, where a rank that is alive has not come before ``deadline``
    (by time.monotonic); ``timeout_s`` is what the message says of it.
    """
    address = address_of(key)
    while time.monotonic() < deadline:
        try:
            roll = _hold(roster, address, deadline, timeout_s) or _attend(roster, address, deadline)
        except OSError as error:
            raise wire.refused(error, roster.rank, len(roster.pids)) from error
        if roll is not None:
            return roll
        time.sleep(_RETRY_S)
    raise RendezvousError(
        f"rank {roster.rank} could not shrink the communicator: whoever held the roll did not answer within "
        f"{timeout_s:g} s",
        rank=roster.rank,
        timeout_s=timeout_s,
    )


def _hold(roster: Roster, address: bytes, deadline: float, timeout_s: float) -> wire.Roll | None:
    """The roll, if this process is the first to come; None if another holds it."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        listener.listen(len(roster.pids))
        listener.setblocking(False)
        selector = stack.enter_context(selectors.DefaultSelector())
        selector.register(listener, selectors.EVENT_READ)
        present: dict[int, socket.socket] = {}
        stack.callback(_close_all, present)
        while missing := _missing(roster, present):
            if time.monotonic() >= deadline:
                failure = _late(roster, missing, timeout_s)
                _tell(present, wire.Failed.of(failure))
                raise failure
            for ready, _ in selector.select(_LOOK_EVERY_S):
                if ready.fileobj is listener:
                    for rank, connection in _accepted(listener, roster):
                        selector.register(connection, selectors.EVENT_READ, rank)
                        present[rank] = connection
                else:  # a guest has nothing to say, so it has left
                    selector.unregister(ready.fileobj)
                    present.pop(ready.data).close()
        roll = wire.Roll(tuple(sorted((*present, roster.rank))), secrets.token_hex(16))
        _tell(present, roll)
        return roll


def _missing(roster: Roster, present: dict[int, socket.socket]) -> list[int]:
    others = (rank for rank in range(len(roster.pids)) if rank != roster.rank and rank not in present)
    return [rank for rank in others if not roster.is_gone(rank)]


def _accepted(listener: socket.socket, roster: Roster) -> Iterator[tuple[int, socket.socket]]:
    with contextlib.suppress(BlockingIOError):
        while True:
            connection, _ = listener.accept()
            peer = wire.credentials(connection)
            if peer.uid == os.geteuid() and peer.pid in roster.pids:
                yield roster.pids.index(peer.pid), connection
            else:
                connection.close()


def _tell(present: dict[int, socket.socket], message: wire.Message) -> None:
    for connection in present.values():
        with contextlib.suppress(OSError):  # whoever cannot be told is gone, and will be missed
            wire.send(connection, message)


def _attend(roster: Roster, address: bytes, deadline: float) -> wire.Roll | None:
    """The roll that another holds; None if it has left."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(max(0.0, deadline - time.monotonic()) + GRACE_S)
        try:
            connection.connect(address)
            host = wire.credentials(connection)
            if host.uid != os.geteuid() or host.pid not in roster.pids:
                return None
            message, _ = wire.receive(connection)
        except (ConnectionRefusedError, BlockingIOError, TimeoutError, wire.HangUpError, wire.GarbageError):
            return None
        if isinstance(message, wire.Failed):
            raise message.error()
        is_right = isinstance(message, wire.Roll) and roster.rank in message.ranks
        return message if isinstance(message, wire.Roll) and is_right else None


def _late(roster: Roster, missing: list[int], timeout_s: float) -> RendezvousError:
    pids = [roster.pids[rank] for rank in missing]
    one = len(missing) == 1
    return RendezvousError(
        f"the communicator could not be shrunk: {spell_ranks(missing)} (pid {', '.join(map(str, pids))}) "
        f"{'is' if one else 'are'} alive and did not call shrink() within {timeout_s:g} s. Every rank that is left "
        "must call it, or end, or close the communicator",
        missing=missing,
        pids=pids,
        timeout_s=timeout_s,
    )


def _close_all(present: dict[int, socket.socket]) -> None:
    for connection in present.values():
        connection.close()
