"""Processes that end together: at the latest with the process that started them, however that one ends.

The rules:

- All are in one process group, and are born into it, so there is no moment in which one of them is outside.
- The group's leader is the *guardian*: a small process that reads from a pipe whose other end only the starter holds.
  The kernel closes that end when the starter ends, SIGKILL included; the guardian then kills the whole group, and so
  also what the processes have started in their turn. (A parent-death signal would reach the direct children only, and
  would need a step between fork and exec.)
- Only a process that leaves the group on purpose, as a daemon does, goes its own way.
- The group is not the terminal's foreground group. A Ctrl-C reaches the starter, who passes it on as it sees fit;
  and the processes cannot read from the terminal.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import selectors
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from farandole.errors import ResourceError, UsageError

_GUARDIAN = "import os, signal\nwhile os.read(0, 1): pass\nos.killpg(0, signal.SIGKILL)"
_ABOVE_STANDARD = 10  # descriptors that are handed on are first moved out of the way of those they become
_READ_BYTES = 64 << 10
_LOOK_EVERY_S = 0.05  # where the kernel cannot tell when a process ends
_OUT_OF_SOMETHING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM)

OnBytes = Callable[[bytes], None]


class ProcessGroup:
    """A group of processes, and a loop that waits for their output and their end.

    As a context manager: on leaving, whatever is left of the group is killed and waited for.
    """

    def __init__(self) -> None:
        self.guardian = 0
        self._stack = contextlib.ExitStack()
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, int] = {}  # pid to pidfd, or -1
        self._readers: dict[int, OnBytes] = {}

    def __enter__(self) -> ProcessGroup:
        with contextlib.ExitStack() as stack:
            stack.callback(self._selector.close)
            far, near = os.pipe()
            stack.callback(os.close, near)
            try:
                null = os.open(os.devnull, os.O_RDWR)
                with contextlib.closing(_Moved({0: far, 1: null, 2: null})) as moved:
                    os.close(null)
                    self.guardian = os.posix_spawn(
                        sys.executable,
                        [sys.executable, "-I", "-S", "-c", _GUARDIAN],
                        os.environ,
                        file_actions=moved.actions(),
                        setpgroup=0,
                        setsigmask=signal.valid_signals(),  # what is sent to the group must not end the guardian
                    )
            finally:
                os.close(far)
            stack.callback(self._end)
            self._watch(self.guardian)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self, command: Sequence[str], environ: Mapping[str, str], descriptors: Mapping[int, int]) -> int:
        """Start ``command`` (a path and its arguments) in the group; the pid.

        ``descriptors`` maps the numbers that the new process sees to open descriptors of this one; of the others it
        inherits 0, 1 and 2 only. Raises ResourceError where no more processes can be started, UsageError where the
        command cannot be.
        """
        try:
            with contextlib.closing(_Moved(descriptors)) as moved:
                pid = os.posix_spawn(
                    command[0],
                    list(command),
                    dict(environ),
                    file_actions=moved.actions(),
                    setpgroup=self.guardian,
                    setsigmask=(),
                    setsigdef=_RESTORED,
                )
        except OSError as error:
            raise refused(error, command[0], len(self._running) - 1) from error
        self._watch(pid)
        return pid

    def read(self, descriptor: int, on_bytes: OnBytes) -> None:
        """Hand what comes from ``descriptor`` to ``on_bytes``, b"" at its end. It is closed then, or with the group."""
        os.set_blocking(descriptor, False)
        self._readers[descriptor] = on_bytes
        self._selector.register(descriptor, selectors.EVENT_READ)

    def pipe(self, on_bytes: OnBytes, stack: contextlib.ExitStack) -> int:
        """A descriptor for a process to write to, read as by ``read``; ``stack`` closes it once the process has it."""
        try:
            read_end, write_end = os.pipe()
        except OSError as error:
            raise refused(error, "", len(self._running) - 1) from error
        stack.callback(os.close, write_end)
        self.read(read_end, on_bytes)
        return write_end

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the group, and to those that they have started."""
        if self.guardian == 0:  # to kill(2), group 0 is one's own
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.guardian, number)

    def wait(self, timeout_s: float | None) -> dict[int, int]:
        """Wait until something happens, at most so long, and hand on what was written.

        Returns those that have ended, by pid: the exit status, or minus the signal's number.
        """
        limit_s = timeout_s
        if -1 in self._running.values():
            limit_s = _LOOK_EVERY_S if timeout_s is None else min(timeout_s, _LOOK_EVERY_S)
        for key, _ in self._selector.select(limit_s):
            if key.fd in self._readers:
                self._read_some(key.fd)
        ended = self._reap(os.WNOHANG)
        if ended:
            self.drain()  # what a process has written comes before the news that it has ended
        return ended

    def drain(self) -> None:
        """Hand on everything that has been written so far."""
        for descriptor in list(self._readers):
            while self._read_some(descriptor):
                pass

    def _read_some(self, descriptor: int) -> bool:
        """Whether there was something, and there may be more."""
        try:
            piece = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        on_bytes = self._readers[descriptor]
        if not piece:
            self._selector.unregister(descriptor)
            del self._readers[descriptor]
            os.close(descriptor)
        on_bytes(piece)
        return bool(piece)

    def _watch(self, pid: int) -> None:
        self._running[pid] = -1
        with contextlib.suppress(AttributeError, OSError):
            self._running[pid] = os.pidfd_open(pid)
            self._selector.register(self._running[pid], selectors.EVENT_READ)

    def _reap(self, flags: int) -> dict[int, int]:
        ended: dict[int, int] = {}
        for pid, handle in list(self._running.items()):
            try:
                reaped, status = os.waitpid(pid, flags)
            except ChildProcessError:  # someone else in this process has waited for it, and the status is lost
                reaped, status = pid, 1 << 8
            if reaped == pid:
                ended[pid] = os.waitstatus_to_exitcode(status)
                del self._running[pid]
                if handle != -1:
                    self._selector.unregister(handle)
                    os.close(handle)
        return ended

    def _end(self) -> None:
        self.signal(signal.SIGKILL)
        for pid in self._running:  # also one that has left the group
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reap(0)
        for descriptor in self._readers:
            os.close(descriptor)
        self._readers.clear()


def refused(error: OSError, program: str, running: int) -> ResourceError | UsageError:
    """The error of ours for a system call that failed on the way to one more process; ``running`` are there."""
    if error.errno in _OUT_OF_SOMETHING:
        return ResourceError(
            f"no more processes can be started beside the {running} that run: {error.strerror}; see ulimit -u and "
            "ulimit -n, and the limits of the container or batch job",
            available=running,
        )
    return UsageError(f"{program} cannot be run: {error.strerror}", got=program)


class _Moved:
    """Copies of descriptors with high numbers, so that giving one its new number cannot overwrite another."""

    def __init__(self, descriptors: Mapping[int, int]) -> None:
        self._copies: dict[int, int] = {}
        try:
            for number, descriptor in descriptors.items():
                self._copies[number] = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STANDARD)
        except OSError:
            self.close()
            raise

    def actions(self) -> list[tuple[int, int, int]]:
        return [(os.POSIX_SPAWN_DUP2, copy, number) for number, copy in self._copies.items()]

    def close(self) -> None:
        for copy in self._copies.values():
            os.close(copy)
        self._copies.clear()
