"""What a rank takes away from a meeting: the others' processes and the shared segment."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from farandole.errors import CommunicationError, PeerLostError, RendezvousError
from farandole.run import segment
from farandole.run.processes import NO_HANDLE, is_dying, release, watch

NO_DESCRIPTOR = -1
_DYING_S = 0.1
MOST_KEPT = 128  # of a process: each is a descriptor, and there are 1,024 by default


def _no_trouble() -> CommunicationError | None:
    return None


def _say_nothing(_: Meeting) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Known:
    """What a rank knows of those that it is to meet, if they have met before; so it need not wait for all to come.

    ``handles`` are pidfds of their processes, by rank: the end of one ends the meeting. So does an error that
    ``trouble`` returns, which is asked now and then: where they met before, somebody has left, or a call has failed.
    ``renounce`` is how a rank tells the others that it goes without what they have met for: an interrupt, say, may come
    when the others have gone on already.
    """

    handles: tuple[int, ...] = ()
    trouble: Callable[[], CommunicationError | None] = _no_trouble
    renounce: Callable[[Meeting], None] = _say_nothing


@dataclass(slots=True)
class Meeting:
    """The ranks of one world, met; ``close`` gives all descriptors back.

    ``pids`` and ``pidfds`` are by rank. A pidfd polls as readable once that process has ended; the own one is -1, and
    so are all where the kernel has none. ``segment_fd`` is -1 where there is no segment. The descriptors belong to the
    meeting: nobody else closes them. ``word`` is what rank 0 has said, and ``cores`` how many cores the ranks share.

    Once ``bind`` was called, the others may have met with this rank, whatever becomes of it: from then until
    ``unbind``, closing the meeting renounces it.
    """

    rank: int
    size: int
    segment_bytes: int
    segment_fd: int = NO_DESCRIPTOR
    pids: tuple[int, ...] = ()
    pidfds: list[int] = field(default_factory=list)
    word: str = ""
    cores: int = 0
    _renounce: Callable[[Meeting], None] | None = field(default=None, init=False)

    def reserve(self) -> None:
        """Reserve this rank's share of the segment; ResourceError where there is too little memory."""
        if self.segment_fd != NO_DESCRIPTOR:
            segment.reserve_share(self.segment_fd, self.segment_bytes, self.rank, self.size)

    def watch(self, pids: tuple[int, ...]) -> None:
        """Take a handle on every other rank's process; PeerLostError where one has ended."""
        self.pids = pids
        for rank, pid in enumerate(pids):
            self.pidfds.append(NO_HANDLE if rank == self.rank else _handle(self.rank, rank, pid))

    def bind(self, renounce: Callable[[Meeting], None]) -> None:
        """From now on this rank is expected."""
        self._renounce = renounce

    def unbind(self) -> None:
        """What the ranks have met for has been made, and tells them when this rank leaves; or it will not be made."""
        self._renounce = None

    def keep_segment(self) -> None:
        """Keep the segment's descriptor, by which ``farandole inspect`` looks in, if this process has not many yet."""
        if self.segment_fd == NO_DESCRIPTOR:
            return
        with _lock:
            if len(_kept) < MOST_KEPT:
                _kept.add(self.segment_fd)
                return
        self.close_segment()

    def close_segment(self) -> None:
        """Close the segment's descriptor; a mapping of it stays."""
        descriptor, self.segment_fd = self.segment_fd, NO_DESCRIPTOR
        if descriptor >= 0:  # of one that is closed already, nothing of this module may be left: Python ends
            with _lock:
                _kept.discard(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Give every descriptor back; closing twice is as good as once."""
        renounce, self._renounce = self._renounce, None
        if renounce is not None and self.pids[self.rank] == os.getpid():  # and not a fork of it
            renounce(self)
        self.close_segment()
        while self.pidfds:
            release(self.pidfds.pop())

    def __del__(self) -> None:
        """An interrupt may come before anybody holds it."""
        self.close()

    def __enter__(self) -> Meeting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


_kept: set[int] = set()
_lock = threading.RLock()  # a meeting that nobody holds is closed wherever the collector comes by


def lost(rank: int, peer: int, pid: int) -> PeerLostError:
    """The error of rank ``rank`` in a meeting in which the process of rank ``peer`` has ended."""
    return PeerLostError(
        f"rank {peer} (pid {pid}) has died while the ranks were meeting", rank=rank, peer=peer, pid=pid
    )


def went_away(rank: int, peer: int, pid: int) -> CommunicationError:
    """The error of rank ``rank`` in a meeting in which rank ``peer`` has hung up."""
    if is_dying(pid, _DYING_S):
        return lost(rank, peer, pid)
    return RendezvousError(
        f"rank {peer} (process {pid}) went away while the ranks were meeting: it gave up, or its call was interrupted",
        rank=peer,
        pid=pid,
    )


def _handle(rank: int, peer: int, pid: int) -> int:
    try:
        return watch(pid)
    except ProcessLookupError:
        raise lost(rank, peer, pid) from None
