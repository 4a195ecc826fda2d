"""What ranks say to each other while they meet, and how it travels.

One message is one packet of a Unix socket that keeps packets apart (SOCK_SEQPACKET): JSON of a known type, at most
64 KiB, with every field checked as it is read. Nothing is unpickled. At most one descriptor travels with a message.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import struct
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from farandole.errors import (
    ClosedError,
    CommunicationError,
    MismatchError,
    PeerLostError,
    RendezvousError,
    ResourceError,
    TimeLimitError,
)

PROTOCOL = 2
MOST_RANKS = 4096
MESSAGE_BYTES = 64 << 10
WORD_BYTES = 12 << 10  # with every character escaped, it still goes into a message beside all pids
NO_DESCRIPTOR = -1

Rank = Annotated[int, Meta(ge=0, lt=MOST_RANKS)]
WorldSize = Annotated[int, Meta(ge=1, le=MOST_RANKS)]
Pid = Annotated[int, Meta(ge=1, lt=2**31)]
Word = Annotated[str, Meta(max_length=WORD_BYTES)]
Fact = int | float | str | list[int] | None
Kind = Literal["rendezvous", "resource", "lost", "mismatch", "late", "closed", "other"]

_OUT_OF_SOMETHING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN)
_DESCRIPTOR = struct.Struct("i")
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid, as the kernel has them


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """A rank comes: who it thinks it is, how long it was told to wait, and how long it still will (seconds).

    ``word`` is what rank 0 has to say to all.
    """

    protocol: int
    version: Annotated[str, Meta(max_length=64)]
    rank: Rank
    size: WorldSize
    segment_bytes: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    timeout_s: Annotated[float, Meta(gt=0)]
    patience_s: Annotated[float, Meta(gt=0)]
    word: Word = ""


class Joined(msgspec.Struct, tag="joined", frozen=True):
    """The host has taken the rank in; this is the host's own rank."""

    rank: Rank


class Welcome(msgspec.Struct, tag="welcome", frozen=True):
    """All ranks are there: their pids, by rank; what rank 0 has said; and how many cores they share.

    The segment's descriptor comes along.
    """

    pids: Annotated[tuple[Pid, ...], Meta(max_length=MOST_RANKS)]
    word: Word = ""
    cores: Annotated[int, Meta(ge=0, lt=2**31)] = 0


class Roll(msgspec.Struct, tag="roll", frozen=True):
    """The ranks of a communicator that are still there, and a word that only they know."""

    ranks: Annotated[tuple[Rank, ...], Meta(min_length=1, max_length=MOST_RANKS)]
    word: Annotated[str, Meta(min_length=16, max_length=64)]


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The rank has the segment, has reserved its share, and has a handle on every other process."""


class Go(msgspec.Struct, tag="go", frozen=True):
    """Every rank is ready."""


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The meeting is over, for everyone: why."""

    kind: Kind
    message: Annotated[str, Meta(max_length=16 << 10)]
    facts: dict[str, Fact]

    @classmethod
    def of(cls, error: CommunicationError) -> Failed:
        """The message that brings ``error`` to the others."""
        facts: dict[str, Fact] = {name: value for name, value in error.facts.items() if _can_travel(value)}
        kind = next(kind for kind, its in _KINDS.items() if isinstance(error, its))
        return cls(kind, str(error)[: 8 << 10], facts)

    def error(self) -> CommunicationError:
        """The error that it brings."""
        facts = {name: value for name, value in self.facts.items() if name not in {"self", "message"}}
        return _KINDS[self.kind](self.message, **facts)


_KINDS: dict[Kind, type[CommunicationError]] = {
    "rendezvous": RendezvousError,
    "resource": ResourceError,
    "lost": PeerLostError,
    "mismatch": MismatchError,
    "late": TimeLimitError,
    "closed": ClosedError,
    "other": CommunicationError,  # of which all others are kinds
}


def _can_travel(value: object) -> bool:
    return isinstance(value, int | float | str) or (
        isinstance(value, list) and all(isinstance(each, int) for each in value)
    )


Message = Hello | Joined | Welcome | Ready | Go | Failed | Roll
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who is at the other end of a socket: the kernel's word, not the peer's. ``pid`` is 0 where it cannot be seen."""

    pid: int
    uid: int


def refused(error: OSError, rank: int, size: int) -> CommunicationError:
    """The error of ours for a system call that failed in a meeting."""
    if error.errno == errno.EMFILE:
        needed, limit = 2 * size + 4, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        left = max(0, limit - len(_open_descriptors(limit)))
        return ResourceError(
            f"rank {rank} of {size} could not meet the others: that takes up to {needed} descriptors, and {left} are"
            f" left of this process's limit of {limit} (ulimit -n); close some, or raise the limit",
            rank=rank,
            size=size,
            needed=needed,
            available=left,
        )
    kind = ResourceError if error.errno in _OUT_OF_SOMETHING else RendezvousError
    return kind(f"rank {rank} of {size} could not meet the others: {error.strerror or error}", rank=rank, size=size)


def _open_descriptors(limit: int) -> list[int]:
    """Those that are open. Without a descriptor to spare, /proc cannot be read: ask for each."""
    found = []
    for number in range(min(limit, 1 << 16)):
        with contextlib.suppress(OSError):
            os.fstat(number)
            found.append(number)
    return found


class HangUpError(Exception):
    """The other end is gone, and nothing it has sent is left to read."""


class GarbageError(Exception):
    """What came is no message of ours."""


def credentials(connection: socket.socket) -> Credentials:
    """Who is at the other end."""
    answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(answer)
    return Credentials(pid, uid)


def send(connection: socket.socket, message: Message, descriptor: int = NO_DESCRIPTOR) -> None:
    """Send one message; that the other end is gone is noticed by whoever receives next, not here."""
    packet = msgspec.json.encode(message)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        if descriptor == NO_DESCRIPTOR:
            connection.send(packet)
        else:
            socket.send_fds(connection, [packet], [descriptor])


def receive(connection: socket.socket) -> tuple[Message, int]:
    """The next message, and the descriptor that came with it, which is the caller's to close, or NO_DESCRIPTOR.

    Raises HangUpError, GarbageError, or TimeoutError and BlockingIOError as the socket is set.
    """
    try:
        packet, descriptors, flags = _receive_packet(connection)
    except ConnectionResetError:
        # The other end closed before it had read all of ours. What it sent before that is still there.
        try:
            packet, descriptors, flags = _receive_packet(connection)
        except ConnectionResetError:
            raise HangUpError from None
    with contextlib.ExitStack() as unwanted:
        for descriptor in descriptors:
            unwanted.callback(os.close, descriptor)
        if not packet:
            raise HangUpError
        if flags & socket.MSG_TRUNC:
            raise GarbageError(f"it is longer than {MESSAGE_BYTES} bytes")
        if flags & socket.MSG_CTRUNC and not descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        try:
            message = _decoder.decode(packet)
        except msgspec.DecodeError as error:  # ValidationError is one
            raise GarbageError(str(error)) from None
        if descriptors and isinstance(message, Welcome):
            unwanted.pop_all()
            return message, descriptors[0]
    return message, NO_DESCRIPTOR


def _receive_packet(connection: socket.socket) -> tuple[bytes, list[int], int]:
    # Not socket.recv_fds: in Python 3.10 to 3.12 it drops its flags, and then the descriptor would survive an exec.
    room = socket.CMSG_LEN(_DESCRIPTOR.size)
    packet, ancillary, flags, _ = connection.recvmsg(MESSAGE_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    rights = [data for level, kind, data in ancillary if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)]
    return packet, [number for data in rights for (number,) in _DESCRIPTOR.iter_unpack(data)], flags
