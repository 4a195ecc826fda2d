"""Ranks that meet, true and false ones, for the tests of the rendezvous."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import CommunicationError, RendezvousError
from farandole.run import hosting, rendezvous, wire
from farandole.run.rendezvous import Meeting, meet

PATIENT_S = 30.0


class Party:
    """Ranks that meet, each in a thread of this process."""

    def __init__(self) -> None:
        self.outcomes: dict[int, Meeting | Exception] = {}
        self._threads: list[threading.Thread] = []

    def come(self, rank: int, *arguments: Any) -> None:
        """A rank comes, and calls ``meet`` with these arguments."""

        def run() -> None:
            try:
                self.outcomes[rank] = meet(rank, *arguments)
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.outcomes[rank] = error

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def wait(self) -> None:
        """Wait until every rank has a meeting or an error."""
        for thread in self._threads:
            thread.join()

    def meetings(self) -> list[Meeting]:
        """What the ranks have got, all of them, by rank."""
        self.wait()
        found = [self.outcomes[rank] for rank in sorted(self.outcomes)]
        assert all(isinstance(outcome, Meeting) for outcome in found), found
        return [outcome for outcome in found if isinstance(outcome, Meeting)]

    def errors(self, kind: type[CommunicationError] = RendezvousError) -> list[CommunicationError]:
        """What the ranks have raised, all of them, by rank."""
        self.wait()
        found = [self.outcomes[rank] for rank in sorted(self.outcomes)]
        assert all(isinstance(outcome, kind) for outcome in found), found
        return [outcome for outcome in found if isinstance(outcome, CommunicationError)]

    def close(self) -> None:
        """Close the meetings."""
        self.wait()
        for outcome in self.outcomes.values():
            if isinstance(outcome, Meeting):
                outcome.close()


def traces(key: str) -> list[Any]:
    """Everything that a meeting might leave behind."""
    names = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "@farandole" in line}
    return [
        listing("/proc/self/fd"),
        listing("/dev/shm"),  # noqa: S108 - only looked at
        [name for name in listing("/tmp") if "farandole" in name],  # noqa: S108
        threading.active_count(),
        [name for name in names if name.encode().replace(b"@", b"\0") == rendezvous.address_of(key)],
    ]


def listing(folder: str) -> list[str]:
    """The names in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


def count_joins(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """A semaphore that goes up when a host has taken a rank in."""
    joins = threading.Semaphore(0)
    take_in = hosting._Host._take_in

    def take_in_and_count(self: hosting._Host, guest: hosting._Guest, hello: wire.Hello) -> None:
        take_in(self, guest, hello)
        joins.release()

    monkeypatch.setattr(hosting._Host, "_take_in", take_in_and_count)
    return joins


@contextlib.contextmanager
def guest(key: str, **changes: Any) -> Iterator[socket.socket]:
    """A connection to whoever holds the meeting, on which a guest has said hello."""
    hello = {
        "protocol": wire.PROTOCOL, "version": "0.1.0", "rank": 1, "size": 3, "segment_bytes": 0,
        "timeout_s": PATIENT_S, "patience_s": PATIENT_S,
    }  # fmt: skip
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connect(connection, key)
        wire.send(connection, wire.Hello(**{**hello, **changes}))
        yield connection


def knock(key: str) -> None:
    """Come and go, as soon as there is someone who holds the meeting."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connect(connection, key)


def connect(connection: socket.socket, key: str) -> None:
    """Connect as soon as there is someone to connect to."""
    while connection.connect_ex(rendezvous.address_of(key)) != 0:
        os.sched_yield()


@contextlib.contextmanager
def false_host(key: str, *answers: tuple[bytes, int]) -> Iterator[None]:
    """Hold a meeting's name, and answer whoever comes with these packets and descriptors (-1 for none)."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(wire.MESSAGE_BYTES)
            for packet, descriptor in answers:
                socket.send_fds(connection, [packet], [] if descriptor < 0 else [descriptor])
            connection.recv(wire.MESSAGE_BYTES)

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(rendezvous.address_of(key))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield
        finally:
            thread.join()


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python process that runs ``script``."""
    return subprocess.Popen([sys.executable, "-c", script, *arguments], text=True, stdout=subprocess.PIPE)
