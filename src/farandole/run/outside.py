"""Communicators seen from outside: found through /proc, read without a word to the ranks, which may be hung.

A rank keeps the descriptor of its segment (the first 128 of them); that of further communicators is read out of the
process's memory, for which Linux may want more rights. A segment has no name, only the descriptors and mappings that
lead to it, so it is told apart by its number (inode). Only segments of the user who asks are read, unless root asks.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from farandole import _core
from farandole.errors import FormatError, UsageError
from farandole.run.flight import Flight, control_bytes, parse
from farandole.run.meeting import MOST_KEPT

_NAME = "/memfd:farandole (deleted)"
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ 0+ \S+ ([0-9]+) +/memfd:farandole \(deleted\)")
_HEAD_BYTES = 64

Read = Callable[[int], bytes]
Segments = dict[int, tuple[Read, int]]


@dataclass(frozen=True, slots=True)
class Process:
    """A process as /proc shows it: its state (R, S, D, T, ...) and when it began; the state of what is gone is ''."""

    pid: int
    state: str
    started: int

    @property
    def is_alive(self) -> bool:
        """Whether it can still do anything."""
        return self.state not in {"", "Z", "X"}


@dataclass(frozen=True, slots=True)
class Communicator:
    """A communicator as it was found: the number of its segment, what it recorded, and its ranks' processes."""

    number: int
    flight: Flight
    processes: tuple[Process, ...]


def of_process(pid: int) -> list[Communicator]:
    """The communicators that a process is in, the oldest first.

    Raises UsageError where there is no such process, or none that may be looked at, FormatError for a segment that is
    damaged or of another version.
    """
    folder = Path("/proc") / str(pid)
    try:
        owner = folder.stat().st_uid
    except FileNotFoundError:
        raise UsageError(f"there is no process {pid}", pid=pid) from None
    if os.geteuid() not in {0, owner}:
        raise UsageError(
            f"process {pid} is of user {owner}, and only that user (or root) may look into it", pid=pid, uid=owner
        )
    seen = [_tried(number, *segment) for number, segment in sorted(_segments(pid).items())]
    found = [each for each in seen if isinstance(each, Communicator)]
    if seen and not found:
        raise next(each for each in seen if isinstance(each, FormatError))
    return found


def of_user() -> list[Communicator]:
    """All communicators of this user on this host, each once; what cannot be read any more is left out."""
    found: dict[int, Communicator] = {}
    for pid in _own_pids():
        try:
            held = _read_of(pid, _held)
            segments = held if len(held) < MOST_KEPT else _segments(pid)  # to read all mappings takes long
        except UsageError:  # the process has ended since, or may not be looked at
            continue
        for number, (read, size) in segments.items():
            if number not in found:
                with contextlib.suppress(OSError, FormatError):
                    found[number] = _communicator(number, read, size)
    return [found[number] for number in sorted(found)]


def process(pid: int, started: int | None = None) -> Process:
    """A process, by pid; one that began at another moment than ``started`` is not the one meant, which is gone."""
    gone = Process(pid, "", 0)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        found = Process(pid, fields[0], int(fields[19]))
    except (OSError, IndexError, ValueError):
        return gone
    return found if started in {None, found.started} else gone


def _own_pids() -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == os.geteuid():
                    yield int(entry.name)


def _segments(pid: int) -> Segments:
    """What reads the beginning of each segment of a process, and the segment's size in bytes, by inode."""
    return {**_read_of(pid, _mapped), **_read_of(pid, _held)}


def _read_of(pid: int, how: Callable[[int], Segments]) -> Segments:
    try:
        return how(pid)
    except PermissionError as error:
        raise UsageError(f"process {pid} may not be looked at: {error.strerror}", pid=pid) from None
    except OSError:  # it has ended meanwhile
        return {}


def _held(pid: int) -> Segments:
    found: Segments = {}
    for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names are all that is wanted
        path = f"/proc/{pid}/fd/{name}"
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(path) == _NAME:  # noqa: PTH115 - Path would make more of the link than it is
                facts = os.stat(path)  # noqa: PTH116
                found[facts.st_ino] = (_reader(path, 0), facts.st_size)
    return found


def _mapped(pid: int) -> Segments:
    found: Segments = {}
    for match in _MAPPING.finditer(Path(f"/proc/{pid}/maps").read_text(errors="replace")):
        begin, end = int(match[1], 16), int(match[2], 16)
        found[int(match[3])] = (_reader(f"/proc/{pid}/mem", begin), end - begin)
    return found


def _reader(path: str, begin: int) -> Read:
    def read(size_bytes: int) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, size_bytes, begin)
        finally:
            os.close(descriptor)

    return read


def _tried(number: int, read: Read, segment_bytes: int) -> Communicator | FormatError:
    """A communicator, or why this is none: arrays that ranks share have the same name as segments."""
    try:
        return _communicator(number, read, segment_bytes)
    except FormatError as error:
        if "foreign" not in error.facts:
            raise
        return error


def _communicator(number: int, read: Read, segment_bytes: int) -> Communicator:
    size = control_bytes(read(_HEAD_BYTES), segment_bytes)
    flight = parse(read(size), read(size), _core.flight_clock())
    return Communicator(number, flight, tuple(process(rank.pid, rank.started) for rank in flight.ranks))
