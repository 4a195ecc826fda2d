"""The host's side of a meeting: it takes the ranks in, shares the segment, and lets them go.

One loop, no thread: it sleeps until a rank comes, speaks or leaves, or until the time is up. Whatever goes wrong is
told to everyone who is there before it is raised here.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from farandole.errors import CommunicationError, RendezvousError
from farandole.run import segment, wire
from farandole.run.machine import cores_of
from farandole.run.meeting import Known, Meeting, lost, went_away
from farandole.run.processes import NO_HANDLE, pid_of

_LOOK_EVERY_S = 0.05  # for trouble among those that have met before, of which nothing wakes the host


@dataclass(slots=True)
class _Guest:
    """A process that has come to the meeting; ``rank`` is None until it has said which one it is."""

    connection: socket.socket
    pid: int
    rank: int | None = None
    is_ready: bool = False


def hold(listener: socket.socket, me: wire.Hello, known: Known) -> Meeting:
    """Hold the meeting of all ranks of ``me.size``, within ``me.patience_s`` seconds.

    Raises RendezvousError, PeerLostError or ResourceError, which then every rank that is there raises too.
    """
    listener.setblocking(False)
    meeting = Meeting(me.rank, me.size, me.segment_bytes)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            for rank, handle in enumerate(known.handles):
                if handle != NO_HANDLE and rank != me.rank:
                    selector.register(handle, selectors.EVENT_READ, rank)
            host = _Host(listener, me, known, selector, time.monotonic() + me.patience_s, me.timeout_s)
            host.hold(meeting)
    except BaseException:
        meeting.close()
        raise
    return meeting


@dataclass(slots=True)
class _Host:
    listener: socket.socket
    me: wire.Hello
    known: Known
    selector: selectors.BaseSelector
    deadline: float
    limit_s: float  # the timeout of the rank whose time is up first
    guests: dict[int, _Guest] = field(default_factory=dict)  # by rank
    refused_uids: set[int] = field(default_factory=set)
    word: str = ""  # of rank 0

    def hold(self, meeting: Meeting) -> None:
        """Hold the meeting, and close every connection."""
        try:
            self.gather()
            self.share(meeting)
        except (CommunicationError, OSError) as error:
            failure = wire.refused(error, self.me.rank, self.me.size) if isinstance(error, OSError) else error
            self.dismiss(failure)
            raise failure from None
        except BaseException:  # an interrupt: the others see this rank leave
            self.abandon()
            raise
        self.dismiss(None)

    def gather(self) -> None:
        """Wait until every rank has come."""
        self._wait(lambda: [rank for rank in self._others() if rank not in self.guests], self._absence)

    def share(self, meeting: Meeting) -> None:
        """Give everyone the segment and everyone's pid, and let them go once all of them have taken both."""
        me = self.me
        pids = tuple(os.getpid() if rank == me.rank else self.guests[rank].pid for rank in range(me.size))
        meeting.word, meeting.cores = me.word if me.rank == 0 else self.word, cores_of(pids)
        if me.segment_bytes:
            meeting.segment_fd = segment.create(me.segment_bytes, "farandole")
        for guest in self.guests.values():
            self._tell(guest, wire.Welcome(pids, meeting.word, meeting.cores), meeting.segment_fd)
        meeting.reserve()
        meeting.watch(pids)
        self._wait(lambda: [rank for rank, guest in self.guests.items() if not guest.is_ready], self._silence)
        self._listen(0)  # a handle taken on a process that has ended since may mean another: so ask once more
        meeting.bind(self.known.renounce)
        for guest in self.guests.values():
            self._tell(guest, wire.Go())

    def dismiss(self, failure: CommunicationError | None) -> None:
        """Close every connection; say why it failed, or that it is over to who has come too late."""
        with contextlib.suppress(OSError):
            self._accept()
        over = RendezvousError(f"the {self.me.size} ranks of this world have met, and this process is not one of them")
        for guest in self._everyone():
            if failure is not None or guest.rank is None:
                self._tell(guest, wire.Failed.of(failure or over))
        self.abandon()

    def abandon(self) -> None:
        """Close every connection without a word."""
        for guest in list(self._everyone()):
            guest.connection.close()

    def _tell(self, guest: _Guest, message: wire.Message, descriptor: int = wire.NO_DESCRIPTOR) -> None:
        # Whoever cannot be told has a full queue or is gone; it will be missed soon enough.
        with contextlib.suppress(OSError):
            wire.send(guest.connection, message, descriptor)

    def _others(self) -> Iterator[int]:
        return (rank for rank in range(self.me.size) if rank != self.me.rank)

    def _everyone(self) -> Iterator[_Guest]:
        return (key.data for key in self.selector.get_map().values() if isinstance(key.data, _Guest))

    def _wait(self, missing: Callable[[], list[int]], late: Callable[[list[int]], RendezvousError]) -> None:
        while ranks := missing():
            left_s = self.deadline - time.monotonic()
            if left_s <= 0:
                raise late(ranks)
            self._listen(min(left_s, _LOOK_EVERY_S) if self.known.handles else left_s)
            if trouble := self.known.trouble():
                raise trouble

    def _listen(self, timeout_s: float) -> None:
        for key, _ in self.selector.select(timeout_s):
            if key.data is None:
                self._accept()
            elif isinstance(key.data, int):
                raise lost(self.me.rank, key.data, pid_of(key.fd))
            else:
                self._hear(key.data)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self.listener.accept()
                connection.setblocking(False)
                peer = wire.credentials(connection)
                if peer.uid != os.geteuid():
                    self.refused_uids.add(peer.uid)
                    connection.close()
                else:
                    self.selector.register(connection, selectors.EVENT_READ, _Guest(connection, peer.pid))

    def _hear(self, guest: _Guest) -> None:
        try:
            message, _ = wire.receive(guest.connection)
        except wire.HangUpError:
            self.selector.unregister(guest.connection)
            guest.connection.close()
            if guest.rank is not None:
                raise went_away(self.me.rank, guest.rank, guest.pid) from None
            return
        except wire.GarbageError as error:
            raise RendezvousError(
                f"process {guest.pid} came to the meeting and sent what is no message of this version of farandole "
                f"({self.me.version}): {error}",
                pid=guest.pid,
            ) from None
        if isinstance(message, wire.Failed):
            raise message.error()
        if isinstance(message, wire.Hello) and guest.rank is None:
            self._take_in(guest, message)
        elif isinstance(message, wire.Ready) and guest.rank is not None:
            guest.is_ready = True
        else:
            raise RendezvousError(f"process {guest.pid} sent {type(message).__name__} out of turn", pid=guest.pid)

    def _take_in(self, guest: _Guest, hello: wire.Hello) -> None:
        me = self.me
        who = f"rank {hello.rank} (process {guest.pid})"
        host = f"rank {me.rank} (process {os.getpid()})"
        if (hello.protocol, hello.version) != (me.protocol, me.version):
            raise RendezvousError(
                f"{who} runs farandole {hello.version}, and {host} runs {me.version}; all ranks need the same",
                rank=hello.rank,
                expected=me.version,
                got=hello.version,
            )
        for what, expected, got in (
            ("ranks in the world", me.size, hello.size),
            ("bytes of shared memory", me.segment_bytes, hello.segment_bytes),
        ):
            if expected != got:
                raise RendezvousError(
                    f"{who} expects {got} {what}, and {host} expects {expected}; all ranks must agree",
                    rank=hello.rank,
                    expected=expected,
                    got=got,
                )
        pids = {rank: other.pid for rank, other in self.guests.items()} | {me.rank: os.getpid()}
        if hello.rank in pids:
            raise RendezvousError(
                f"two processes claim rank {hello.rank} of {me.size}: {pids[hello.rank]} and {guest.pid}; each rank is "
                "one process (is a launcher missing, or one inside another?)",
                rank=hello.rank,
                pids=[pids[hello.rank], guest.pid],
            )
        if guest.pid == 0:
            raise RendezvousError(
                f"{who} cannot be seen from {host}: the ranks of a host must share a PID namespace (as containers do "
                "with --pid=host), so that they notice when one dies",
                rank=hello.rank,
                pid=0,
            )
        guest.rank = hello.rank
        if hello.rank == 0:
            self.word = hello.word
        self.guests[hello.rank] = guest
        if time.monotonic() + hello.patience_s < self.deadline:
            self.deadline, self.limit_s = time.monotonic() + hello.patience_s, hello.timeout_s
        self._tell(guest, wire.Joined(me.rank))

    def _absence(self, missing: list[int]) -> RendezvousError:
        uids = sorted(self.refused_uids)
        strangers = f"; processes of other users were turned away (uid {spell(uids)})" if uids else ""
        return self._late(
            missing,
            f"did not come within {self.limit_s:g} s, and {spell_ranks(self._without(missing))} did{strangers}. "
            "All must be started, on this host and by one user, and must get as far as this call",
            refused_uids=uids,
        )

    def _silence(self, missing: list[int]) -> RendezvousError:
        return self._late(
            missing, f"came but did not take the shared memory within {self.limit_s:g} s: stopped, or too slow"
        )

    def _late(self, missing: list[int], what: str, **facts: list[int]) -> RendezvousError:
        message = f"{spell_ranks(missing)} of {self.me.size} {what}"
        present = self._without(missing)
        return RendezvousError(
            message, missing=missing, present=present, size=self.me.size, timeout_s=self.limit_s, **facts
        )

    def _without(self, missing: list[int]) -> list[int]:
        return [rank for rank in range(self.me.size) if rank not in missing]


def spell(numbers: Iterable[int]) -> str:
    """Numbers in words, runs drawn together.

    >>> spell([1]), spell([0, 2]), spell([1, 3, 4, 5, 6, 9])
    ('1', '0 and 2', '1, 3-6 and 9')
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [text for run in runs for text in ([str(n) for n in run] if len(run) < 3 else [f"{run[0]}-{run[-1]}"])]
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def spell_ranks(ranks: Iterable[int]) -> str:
    """As ``spell``, with the word.

    >>> spell_ranks([2]), spell_ranks([0, 2])
    ('rank 2', 'ranks 0 and 2')
    """
    listed = list(ranks)
    return f"rank{'' if len(listed) == 1 else 's'} {spell(listed)}"
