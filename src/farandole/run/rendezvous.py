"""How the ranks of one host find each other and get the memory that they share.

The rules:

- The ranks meet at a Unix socket whose name follows from their key. Whoever comes first takes the name and is the
  *host* of this meeting, the others are its guests; so no rank has to come before another, nobody polls, and
  whoever is missing is known, whichever rank it is.
- The host makes the shared segment and sends its descriptor to all. When every rank has it, has reserved its share
  of the memory and holds a handle on every other process, the host lets them go, and the sockets are closed.
- A meeting fails for everyone who is there, with the same error: at once when a rank dies in it, when two processes
  claim one rank, and when ranks disagree about the world; and when the first rank's time is up, since that rank
  leaves. Who comes after that finds a new meeting, in which the others are missing.
- The name is *abstract*: it is in no folder, and it goes with the process that holds it. So nothing is left to clean
  up after SIGKILL at any moment, which no socket file in a private folder can promise. Its price is that there are no
  permissions on it. Therefore both ends ask the kernel who the other is, and talk to processes of the same user only;
  and the name is a hash of the key, which cannot be guessed where the launcher's key cannot. Another user who takes
  a guessable name first can keep a job from starting, with an error that says who it was, and can do no more.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import socket
import time
from dataclasses import dataclass
from typing import TypeVar

import farandole
from farandole.errors import CommunicationError, RendezvousError, UsageError
from farandole.run import segment, wire
from farandole.run.hosting import hold
from farandole.run.meeting import NO_DESCRIPTOR, Known, Meeting, went_away
from farandole.run.processes import NO_HANDLE

__all__ = ["Meeting", "meet"]

NOTHING_KNOWN = Known()
GRACE_S = 1.0  # the host settles lateness; this is how long its guests wait for its word
_RETRY_S = 0.01
_Expected = TypeVar("_Expected", bound=wire.Message)


def meet(
    rank: int,
    size: int,
    key: str,
    timeout_s: float,
    segment_bytes: int = 0,
    word: str = "",
    known: Known = NOTHING_KNOWN,
) -> Meeting:
    """Wait until all ``size`` ranks of this host are here, at most ``timeout_s`` seconds, and share a new segment.

    All ranks give the same ``size``, ``key`` and ``segment_bytes``; no two give the same ``rank``. All get rank 0's
    ``word``, at most 12 KiB. A world of one needs no socket, no segment and no time.

    Raises RendezvousError, with the facts ``missing`` and ``present``, where ranks are missing, PeerLostError where one
    has died, and ResourceError where there is too little memory.

    What is ``known`` of the ranks may end the meeting before its time, with PeerLostError or an error of its own.
    """
    _check_arguments(rank, size, key, timeout_s, segment_bytes)
    if size == 1:
        return Meeting(rank, size, segment_bytes=0, pids=(os.getpid(),), pidfds=[NO_HANDLE])
    deadline = time.monotonic() + timeout_s
    address = address_of(key)
    try:
        while (left_s := deadline - time.monotonic()) > 0:
            me = wire.Hello(wire.PROTOCOL, farandole.__version__, rank, size, segment_bytes, timeout_s, left_s, word)
            meeting = _as_host(address, me, known) or _as_guest(address, me, known)
            if meeting is not None:
                return meeting
            time.sleep(_RETRY_S)
    except OSError as error:
        raise wire.refused(error, rank, size) from error
    raise RendezvousError(
        f"rank {rank} of {size} met no one within {timeout_s:g} s: the meeting's name is taken, and nobody answers",
        rank=rank,
        size=size,
        timeout_s=timeout_s,
    )


def _check_arguments(rank: int, size: int, key: str, timeout_s: float, segment_bytes: int) -> None:
    if not 1 <= size <= wire.MOST_RANKS or not 0 <= rank < size:
        raise UsageError(
            f"a world has 1 to {wire.MOST_RANKS} ranks, numbered from 0; not rank {rank} of {size}",
            rank=rank,
            size=size,
        )
    if not key:
        raise UsageError("ranks that are to meet need a key, the same for all of them", got=key)
    if not (timeout_s > 0 and math.isfinite(timeout_s)):
        raise UsageError(f"a timeout is a number of seconds greater than 0, not {timeout_s!r}", got=timeout_s)
    if not 0 <= segment_bytes < 2**63:
        raise UsageError(f"a segment has 0 to 2^63 - 1 bytes, not {segment_bytes}", got=segment_bytes)


def address_of(key: str) -> bytes:
    """The abstract socket at which those meet who know ``key``."""
    return b"\0farandole-" + hashlib.sha256(key.encode()).hexdigest()[:32].encode()


def _as_host(address: bytes, me: wire.Hello, known: Known) -> Meeting | None:
    """The meeting, if this process is the first to come; None if the name is taken."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        listener.listen(me.size)
        return hold(listener, me, known)


def _as_guest(address: bytes, me: wire.Hello, known: Known) -> Meeting | None:
    """The meeting, held by another; None if there is no one after all, who has just come or just left."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(me.patience_s + GRACE_S)
        try:
            connection.connect(address)
        except (ConnectionRefusedError, BlockingIOError):
            return None
        host = wire.credentials(connection)
        if host.uid != os.geteuid():
            raise RendezvousError(
                f"the meeting's name is held by process {host.pid} of user {host.uid}, and rank {me.rank} is a process "
                f"of user {os.geteuid()}; all ranks of a job run as one user",
                rank=me.rank,
                pid=host.pid,
                uid=host.uid,
            )
        return _Guest(connection, me, known, host.pid).attend()


@dataclass(slots=True)
class _Guest:
    """A rank that another rank's process has let in; what it says is what this rank goes by."""

    connection: socket.socket
    me: wire.Hello
    known: Known
    host_pid: int
    host_rank: int = -1  # not known until the host has said so

    def attend(self) -> Meeting | None:
        """Follow the host to the end; None if it has left before it took this rank in."""
        me, meeting = self.me, Meeting(self.me.rank, self.me.size, self.me.segment_bytes)
        try:
            wire.send(self.connection, me)
            self.host_rank = self._next(wire.Joined, meeting).rank
            welcome = self._next(wire.Welcome, meeting)
            meeting.word, meeting.cores = welcome.word, welcome.cores
            self._settle(meeting, welcome.pids)
            meeting.bind(self.known.renounce)
            wire.send(self.connection, wire.Ready())
            self._next(wire.Go, meeting)
        except wire.HangUpError:
            meeting.close()
            if self.host_rank < 0:
                return None
            raise went_away(self.me.rank, self.host_rank, self.host_pid) from None
        except BaseException:
            meeting.close()
            raise
        return meeting

    def _settle(self, meeting: Meeting, pids: tuple[int, ...]) -> None:
        me = self.me
        try:
            if len(pids) != me.size or pids[me.rank] != os.getpid():
                raise self._error(
                    f"knows rank {me.rank} by another pid than its own, {os.getpid()}: the ranks of a host must share "
                    "a PID namespace (as containers do with --pid=host), so that they notice when one dies"
                )
            if me.segment_bytes:
                segment.check(meeting.segment_fd, me.segment_bytes)
                meeting.reserve()
            meeting.watch(pids)
        except (CommunicationError, OSError) as error:
            failure = wire.refused(error, me.rank, me.size) if isinstance(error, OSError) else error
            wire.send(self.connection, wire.Failed.of(failure))
            raise failure from None

    def _next(self, expected: type[_Expected], meeting: Meeting) -> _Expected:
        """The host's next message, which must be of that type; the segment goes to ``meeting``, where it is closed."""
        try:
            message, descriptor = wire.receive(self.connection)
        except TimeoutError:
            raise self._error("holds the meeting and does not answer: it is stopped, or too slow") from None
        except wire.GarbageError as error:
            raise self._error(f"sent what is no message of this version of farandole: {error}") from None
        if descriptor != NO_DESCRIPTOR:
            meeting.close_segment()
            meeting.segment_fd = descriptor
        if isinstance(message, wire.Failed):
            meeting.unbind()
            failure = self.known.trouble() or message.error()  # rather in this rank's own words than in the host's
            if "peer" in failure.facts:
                failure.facts["rank"] = self.me.rank
            raise failure
        if not isinstance(message, expected):
            raise self._error(f"sent {type(message).__name__} where {expected.__name__} was due")
        return message

    def _error(self, what: str) -> RendezvousError:
        who = f"rank {self.host_rank}" if self.host_rank >= 0 else "the first rank to come"
        return RendezvousError(f"{who} (process {self.host_pid}) {what}", rank=self.host_rank, pid=self.host_pid)
