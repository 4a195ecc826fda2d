"""Start the ranks of one host, and see to it that they end together.

What users of torchrun and mpirun expect:

- What ranks write goes straight to the launcher's own stdout and stderr, untouched, so that colours and progress bars
  work; or, on request, through the launcher, in whole lines with ``[rank]`` before each.
- The first rank that fails decides: its exit status is the launcher's, and the others get SIGTERM, then SIGKILL. Where
  several have ended by the time one looks, a rank that a signal has ended comes first: the others fail because of it.
  On request the others go on, as ranks can that shrink their communicator.
- Ctrl-C reaches every rank once; a second one kills them. SIGTERM and SIGHUP are passed on.
- No rank outlives the launcher, nor does anything that a rank has started: see ``group``.
- Rank 0 reads the launcher's standard input, unless that is a terminal; the other ranks find it empty.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from farandole.errors import UsageError
from farandole.run.group import ProcessGroup
from farandole.run.job import ending, environments, exit_status, new_key
from farandole.run.output import Tagged

GRACE_S = 10.0
TIMED_OUT = 124  # as timeout(1) has it
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Note = Callable[[str], None]


def launch(
    n: int,
    command: Sequence[str],
    *,
    tag: bool = False,
    go_on: bool = False,
    timeout_s: float | None = None,
    grace_s: float = GRACE_S,
    environ: Mapping[str, str] | None = None,
    note: Note = lambda _: None,
) -> int:
    """Run ``command`` in ``n`` processes, ranks 0 to n-1 of one job; the exit status of the job.

    That is 0 if all ranks end with 0; else the first failing rank's (128 and the signal's number, if a signal ended
    it); 128 and the signal's number if the launcher was told to stop (130 after Ctrl-C); 124 if the job took longer
    than ``timeout_s``. ``grace_s`` is how long ranks that are told to end have for it. ``tag`` marks every line that a
    rank writes with its number. ``note`` is told, in one sentence, why ranks are stopped.

    With ``go_on``, a rank that fails does not stop the others, and the exit status is 0 if any rank ends with 0.

    Raises UsageError if the command cannot be found, ResourceError if the system refuses so many processes.
    """
    resolved = _resolve(command)
    ranks = environments(n, os.environ if environ is None else environ, new_key())
    with _signals() as signals, ProcessGroup() as group:
        job = _Job(group, note, grace_s, go_on)
        if signals is not None:
            group.read(signals, job.on_signals)
        for rank, variables in enumerate(ranks):
            job.start(rank, resolved, variables, tag)
        return job.run(None if timeout_s is None else time.monotonic() + timeout_s)


def python_command(target: str, arguments: Sequence[str], *, is_module: bool = False) -> list[str]:
    """The command for a script (``.py``), a module, or any other program.

    >>> python_command("./solve", ["8"])
    ['./solve', '8']
    """
    if is_module:
        return [sys.executable, "-m", target, *arguments]
    if target.endswith(".py"):
        if not Path(target).is_file():
            raise UsageError(f"there is no script {target}", got=target)
        return [sys.executable, target, *arguments]
    return [target, *arguments]


def _resolve(command: Sequence[str]) -> list[str]:
    if not command:
        raise UsageError("a command to run is needed")
    path = shutil.which(command[0])
    if path is None:
        raise UsageError(
            f"there is no program {command[0]} that can be run (a Python script's name ends in .py)", got=command[0]
        )
    return [path, *command[1:]]


@contextlib.contextmanager
def _signals() -> Iterator[int | None]:
    """A descriptor that yields the number of each signal that is to be passed on, as a byte.

    Handlers belong to the main thread; elsewhere there is none, and an interrupt is the caller's affair.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    def handle(number: int, _: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(write_end, bytes([number]))

    before = {
        number: signal.signal(number, handle) for number in _PASSED_ON if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield read_end  # the group closes it
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(write_end)


@dataclass(slots=True)
class _Job:
    group: ProcessGroup
    note: Note
    grace_s: float
    goes_on: bool = False
    ranks: dict[int, int] = field(default_factory=dict)  # by pid, those that run
    status: int = 0  # of the job, once it is stopped
    first_failure: int = 0  # the status of the first rank that failed, where the others go on
    has_success: bool = False
    kill_at: float | None = None

    def start(self, rank: int, command: Sequence[str], environ: dict[str, str], tag: bool) -> None:
        with contextlib.ExitStack() as stack:
            descriptors = {_STDIN: _standard_input(rank, stack)}
            if tag:
                environ["PYTHONUNBUFFERED"] = environ.get("PYTHONUNBUFFERED") or "1"
                for number in (_STDOUT, _STDERR):
                    descriptors[number] = self.group.pipe(Tagged(rank, _Writer(number)), stack)
            self.ranks[self.group.start(command, environ, descriptors)] = rank

    def run(self, deadline: float | None) -> int:
        """Wait for all ranks; the exit status."""
        try:
            while self.ranks:
                self._take_stock(self.group.wait(self._time_left(deadline)))
                now = time.monotonic()
                if self.kill_at is not None and now >= self.kill_at:
                    self.group.signal(signal.SIGKILL)
                    self.kill_at = now + self.grace_s
                elif self.kill_at is None and deadline is not None and now >= deadline:
                    self._stop(TIMED_OUT, "the time is up; stopping the ranks", signal.SIGTERM)
            self.group.drain()
        except BrokenPipeError:  # whoever read the tagged lines has gone
            return 128 + signal.SIGPIPE
        return self.status if self.status or self.has_success else self.first_failure

    def on_signals(self, numbers: bytes) -> None:
        for number in map(signal.Signals, numbers):
            if self.kill_at is not None and number == signal.SIGINT:
                self.kill_at = time.monotonic()
            else:
                self._stop(128 + number, f"{number.name}: passing it on to the ranks", number)

    def _take_stock(self, ended: dict[int, int]) -> None:
        if self.group.guardian in ended and self.kill_at is None:
            self._stop(1, "the process that guards the ranks was killed; stopping the ranks", signal.SIGTERM)
        failed = [(status >= 0, self.ranks.pop(pid), pid, status) for pid, status in ended.items() if pid in self.ranks]
        for _, rank, pid, status in sorted(failed):
            self.has_success |= status == 0
            if status == 0 or self.kill_at is not None:
                continue
            how = f"rank {rank} (process {pid}) {ending(status)}"
            if self.goes_on:
                self.first_failure = self.first_failure or exit_status(status)
                self.note(f"{how}; the others go on" if self.ranks else how)
            else:
                self._stop(exit_status(status), f"{how}; stopping the others" if self.ranks else how, signal.SIGTERM)

    def _stop(self, status: int, reason: str, number: signal.Signals) -> None:
        if self.kill_at is None:
            self.status = status
            self.kill_at = time.monotonic() + self.grace_s
        self.note(reason)
        self.group.signal(number)
        self.group.signal(signal.SIGCONT)  # a stopped process would not hear of it

    def _time_left(self, deadline: float | None) -> float | None:
        at = deadline if self.kill_at is None else self.kill_at
        return None if at is None else max(0.0, at - time.monotonic())


class _Writer:
    """Writes to a descriptor as a whole, however long that takes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, text: bytes) -> None:
        while text:
            text = text[os.write(self._descriptor, text) :]


def _standard_input(rank: int, stack: contextlib.ExitStack) -> int:
    if rank == 0 and not os.isatty(_STDIN):
        with contextlib.suppress(OSError):  # it may be closed
            os.fstat(_STDIN)
            return _STDIN
    null = os.open(os.devnull, os.O_RDONLY)
    stack.callback(os.close, null)
    return null
