"""Run one function in the ranks of a new job, each a fresh process, and collect what they return.

Arguments, results and progress are JSON, so nothing is pickled, and the processes share nothing but what they set up
themselves: ``farandole.init()`` in the function gives its rank's communicator. A function is named
``module:function`` or ``folder/file.py:function``; if it has a parameter ``progress``, it gets a function to call
with whatever it has to tell (rank 0 is listened to, the other ranks' calls do nothing).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from farandole import errors
from farandole.errors import CommunicationError, FarandoleError, PeerLostError, TimeLimitError
from farandole.run.child import ANSWERS, REQUEST
from farandole.run.group import ProcessGroup
from farandole.run.hosting import spell_ranks
from farandole.run.job import ending, environments, new_key
from farandole.run.output import Tail

TIMEOUT_S = 60.0
_STDOUT, _STDERR = 1, 2
_TAIL_BYTES = 4000
_MOST_ANSWER_BYTES = 64 << 20
# The child imports what its parent could: its sys.path comes first, before anything of ours is imported.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from farandole.run.child import main; sys.exit(main())"
)

Progress = Callable[[Any], None]


@dataclass(slots=True)
class Outcome:
    """What became of one rank: its result, or its error; ``output`` is the end of what it wrote.

    ``status`` is its exit status, or minus the number of the signal that ended it; None if it was still running when
    the time was up, or when another rank had failed.
    """

    rank: int
    pid: int
    result: Any = None
    error: FarandoleError | None = None
    status: int | None = None
    output: str = ""


def spawn(
    n: int,
    function: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    progress: Progress | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[Any]:
    """Call ``function(**arguments)`` in ``n`` ranks; their results, by rank.

    The first rank that fails stops the others, and its error is raised: one of ours as it was, with the rank's
    traceback as its cause; another exception as CommunicationError, with the facts ``rank``, ``type`` and
    ``traceback``. A rank that ends without a word is a PeerLostError, and one that is not done after ``timeout_s``
    seconds a TimeLimitError.
    """
    outcomes, failures = _run(n, function, arguments, timeout_s, progress, environ, stop_at_failure=True)
    if failures:
        raise failures[0]
    return [outcome.result for outcome in outcomes]


def spawn_all(
    n: int,
    function: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    progress: Progress | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """As ``spawn``, but the ranks go on when one fails, and all outcomes are returned, by rank."""
    return _run(n, function, arguments, timeout_s, progress, environ, stop_at_failure=False)[0]


def _run(
    n: int,
    function: str,
    arguments: Mapping[str, Any] | None,
    timeout_s: float,
    progress: Progress | None,
    environ: Mapping[str, str] | None,
    *,
    stop_at_failure: bool,
) -> tuple[list[Outcome], list[FarandoleError]]:
    """The outcomes by rank, and the failures in the order in which they came."""
    deadline = time.monotonic() + timeout_s
    ranks: list[_Rank] = []
    failures: list[FarandoleError] = []
    with ProcessGroup() as group:
        for rank, variables in enumerate(environments(n, os.environ if environ is None else environ, new_key())):
            request = {"function": function, "arguments": arguments or {}, "rank": rank}
            ranks.append(_start(group, rank, variables, request, progress))
        while any(rank.outcome.status is None for rank in ranks) and not (failures and stop_at_failure):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                failures += _late(ranks, timeout_s)
                break
            failures += _ended(ranks, group.wait(left_s))
    return [rank.outcome for rank in ranks], failures


def _start(
    group: ProcessGroup, number: int, environ: dict[str, str], request: dict[str, Any], progress: Progress | None
) -> _Rank:
    rank = _Rank(Outcome(number, 0), progress)
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-c",
        _BOOT,
        json.dumps([path or str(Path.cwd()) for path in sys.path]),
    ]
    with contextlib.ExitStack() as stack:
        asked = os.memfd_create("farandole-request", os.MFD_CLOEXEC)
        stack.callback(os.close, asked)
        with os.fdopen(os.dup(asked), "wb") as file:
            file.write(msgspec.json.encode(request))
        os.lseek(asked, 0, os.SEEK_SET)
        written = group.pipe(rank.tail, stack)
        descriptors = {REQUEST: asked, _STDOUT: written, _STDERR: written, ANSWERS: group.pipe(rank.on_answer, stack)}
        rank.outcome.pid = group.start(command, environ, descriptors)
    return rank


@dataclass(slots=True)
class _Rank:
    """What one rank has answered so far."""

    outcome: Outcome
    progress: Progress | None
    tail: Tail = field(default_factory=lambda: Tail(_TAIL_BYTES))
    rest: bytes = b""
    has_answered: bool = False

    def on_answer(self, piece: bytes) -> None:
        """Take the next bytes of its answers."""
        *lines, self.rest = (self.rest + piece).split(b"\n")
        for line in lines:
            answer = msgspec.json.decode(line, type=dict[str, Any])
            if "progress" in answer and self.progress is not None:
                self.progress(answer["progress"])
            elif "result" in answer:
                self.outcome.result, self.has_answered = answer["result"], True
            elif "error" in answer:
                self.outcome.error, self.has_answered = self._error(answer["error"]), True

    def end(self, status: int) -> FarandoleError | None:
        """It has ended: its error, if it has one."""
        outcome = self.outcome
        outcome.status, outcome.output = status, self.tail.text
        if outcome.error is None and (status != 0 or not self.has_answered):
            how = f"{ending(status)} {'after' if self.has_answered else 'before'} it had returned"
            outcome.error = PeerLostError(
                f"rank {outcome.rank} (process {outcome.pid}) {how}{self.last_words()}",
                rank=outcome.rank,
                pid=outcome.pid,
                status=status,
            )
        return outcome.error

    def _error(self, answer: dict[str, Any]) -> FarandoleError:
        rank, kind, message = self.outcome.rank, answer["type"], answer["message"]
        raised = CommunicationError(
            f"rank {rank} raised {kind}: {message}\n\n{answer['traceback']}{self.last_words()}",
            rank=rank,
            type=kind,
            traceback=answer["traceback"],
        )
        ours: type[FarandoleError] | None = getattr(errors, kind, None)
        if answer["module"] != errors.__name__ or ours is None:
            return raised
        error = ours.__new__(ours)  # their constructors differ, but all have a message and facts
        FarandoleError.__init__(error, message)
        error.facts = answer["facts"]
        error.__cause__ = raised
        return error

    def last_words(self) -> str:
        """The end of what it wrote, as the end of a message."""
        return f"\nThe last that it wrote:\n{self.tail.text}" if self.tail.text else ""


def _ended(ranks: list[_Rank], statuses: dict[int, int]) -> list[FarandoleError]:
    """The failures of those that have ended, those that a signal ended first: the others may fail because of them."""
    ended = [(statuses[rank.outcome.pid], rank) for rank in ranks if rank.outcome.pid in statuses]
    failures = [
        rank.end(status) for status, rank in sorted(ended, key=lambda pair: (pair[0] >= 0, pair[1].outcome.rank))
    ]
    return [failure for failure in failures if failure is not None]


def _late(ranks: list[_Rank], timeout_s: float) -> list[FarandoleError]:
    late = [rank for rank in ranks if rank.outcome.status is None]
    names = [rank.outcome.rank for rank in late]
    for rank in late:
        rank.outcome.output = rank.tail.text
        rank.outcome.error = rank.outcome.error or TimeLimitError(
            f"{spell_ranks(names)} of {len(ranks)} had not finished after {timeout_s:g} s{rank.last_words()}",
            ranks=names,
            timeout_s=timeout_s,
        )
    return [rank.outcome.error for rank in late[:1] if rank.outcome.error is not None]
