"""The ranks of one library, as the coordinator sees them: started, asked all at once, and waited for.

Its ranks connect to a folder that only this user can enter; see ``rank`` for what goes over the connections. A
library whose ranks fail, or do not answer in time, raises CommunicationError with the last that it wrote.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from farandole.bench.peers import Library
from farandole.bench.rank import COMMANDS, LIFELINE
from farandole.errors import CommunicationError, TimeLimitError
from farandole.run.group import ProcessGroup
from farandole.run.job import ending
from farandole.run.output import Tail

START_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 10.0
_LOOK_EVERY_S = 0.02  # while ranks connect
_TAIL_BYTES = 4000
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from farandole.bench.rank import main; sys.exit(main(*sys.argv[2:]))"
)

Answers = list[dict[str, Any]]


class Job:
    """One library on ``ranks`` ranks."""

    def __init__(self, group: ProcessGroup, library: Library, ranks: int, folder: Path, ended: dict[int, int]) -> None:
        """Start it. ``ended`` is shared by all jobs of the group: who has ended, and how."""
        self.library = library
        self.ranks = ranks
        self.version = ""
        self._group = group
        self._ended = ended
        self._tail = Tail(_TAIL_BYTES)
        self._pids: list[int] = []
        self._connections: list[_Connection] = []
        self._lifelines: list[socket.socket] = []
        folder.mkdir(mode=0o700)
        settings = json.dumps({**library.settings, "meeting": str(folder / "meeting")})
        paths = json.dumps([path or str(Path.cwd()) for path in sys.path])
        own = [sys.executable, "-c", _BOOT, paths, str(folder), library.kind, settings]
        try:
            with _listening(folder / COMMANDS, ranks) as commands, _listening(folder / LIFELINE, ranks) as lifelines:
                for before, variables in library.starts(ranks, os.environ):
                    self._start([*before, *own], variables)
                self._connect(commands, lifelines)
            hellos = self._gather(START_TIMEOUT_S, "starting")
            self._check(hellos)
        except BaseException:
            self.kill()
            raise

    def ask(self, order: Mapping[str, Any], timeout_s: float, what: str) -> Answers:
        """Give all ranks an order; their answers, in no fixed order. ``what`` is for messages."""
        line = msgspec.json.encode(order) + b"\n"
        for connection in self._connections:
            if connection.is_open:
                with contextlib.suppress(BrokenPipeError):
                    os.write(connection.descriptor, line)
        return self._gather(timeout_s, what)

    def close(self) -> None:
        """Let the ranks leave in order, and wait for them; those that stay are killed."""
        for connection in self._connections:
            if connection.is_open:
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.descriptor)) as borrowed:
                    borrowed.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + _END_TIMEOUT_S
        while any(pid not in self._ended for pid in self._pids) and time.monotonic() < deadline:
            self._look(deadline - time.monotonic())
        self.kill()

    def kill(self) -> None:
        """End all ranks now, wherever they are."""
        for lifeline in self._lifelines:
            lifeline.close()
        self._lifelines.clear()

    def _start(self, command: list[str], variables: dict[str, str]) -> None:
        with contextlib.ExitStack() as stack:
            null = os.open(os.devnull, os.O_RDONLY)
            stack.callback(os.close, null)
            written = self._group.pipe(self._tail, stack)
            self._pids.append(self._group.start(command, variables, {_STDIN: null, _STDOUT: written, _STDERR: written}))

    def _connect(self, commands: socket.socket, lifelines: socket.socket) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while len(self._connections) < self.ranks or len(self._lifelines) < self.ranks:
            with contextlib.suppress(BlockingIOError):
                self._lifelines.append(lifelines.accept()[0])
            with contextlib.suppress(BlockingIOError):
                connection = _Connection(commands.accept()[0].detach())
                self._connections.append(connection)
                self._group.read(connection.descriptor, connection.on_bytes)
            if any(pid in self._ended for pid in self._pids):
                raise self._failure("starting")
            if time.monotonic() > deadline:
                raise self._late("starting", START_TIMEOUT_S, self.ranks - len(self._connections))
            self._look(_LOOK_EVERY_S)

    def _gather(self, timeout_s: float, what: str) -> Answers:
        deadline = time.monotonic() + timeout_s
        while not all(connection.answers for connection in self._connections):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self._late(what, timeout_s, sum(not connection.answers for connection in self._connections))
            if any(not connection.is_open and not connection.answers for connection in self._connections):
                raise self._failure(what)
            self._look(left_s)
        answers = [connection.answers.pop(0) for connection in self._connections]
        errors = [answer["error"] for answer in answers if "error" in answer]
        if errors:
            raise CommunicationError(
                f"{self.library.name} on {self.ranks} ranks, {what}: {errors[0]}{self._last_words()}",
                library=self.library.name,
                ranks=self.ranks,
            )
        return answers

    def _check(self, hellos: Answers) -> None:
        found = sorted((hello["rank"], hello["size"]) for hello in hellos)
        self.version = hellos[0]["version"]
        if found != [(rank, self.ranks) for rank in range(self.ranks)]:
            raise CommunicationError(
                f"{self.library.name}: its ranks should be 0 to {self.ranks - 1} of {self.ranks}, and say that they "
                f"are {', '.join(f'{rank} of {size}' for rank, size in found)}; is the mpiexec in "
                f"{self.library.prefix} of the same library?",
                library=self.library.name,
                expected=self.ranks,
                got=found,
            )

    def _look(self, timeout_s: float) -> None:
        self._ended.update(self._group.wait(timeout_s))

    def _failure(self, what: str) -> CommunicationError:
        self._look(0.5)  # the connection ends a moment before the process does
        how = [ending(self._ended[pid]) for pid in self._pids if pid in self._ended]
        return CommunicationError(
            f"{self.library.name} on {self.ranks} ranks, {what}: a rank {how[0] if how else 'went away'}"
            f"{self._last_words()}",
            library=self.library.name,
            ranks=self.ranks,
        )

    def _late(self, what: str, timeout_s: float, missing: int) -> TimeLimitError:
        return TimeLimitError(
            f"{self.library.name} on {self.ranks} ranks, {what}: {missing} of them did not answer within "
            f"{timeout_s:g} s{self._last_words()}",
            library=self.library.name,
            ranks=self.ranks,
            timeout_s=timeout_s,
        )

    def _last_words(self) -> str:
        return f"\nThe last that it wrote:\n{self._tail.text}" if self._tail.text else ""


@dataclass(slots=True)
class _Connection:
    """The orders to one rank, and its answers."""

    descriptor: int
    is_open: bool = True
    rest: bytes = b""
    answers: Answers = field(default_factory=list)

    def on_bytes(self, piece: bytes) -> None:
        self.is_open = bool(piece)  # at the end, the group closes the descriptor
        *lines, self.rest = (self.rest + piece).split(b"\n")
        self.answers += [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]


def _listening(path: Path, ranks: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.bind(str(path))
    listener.listen(ranks)
    listener.setblocking(False)
    return listener
