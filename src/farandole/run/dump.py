"""What the flight recorder held when a call failed, written to a file: ``FARANDOLE_DUMP=FOLDER`` asks for it.

Each rank that fails writes one file per communicator, which holds the last calls of all ranks: first for its first
failure, and over it once the communicator is broken. A file appears whole or not at all. That it could not be
written is part of the message, and never hides the failure.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

import farandole
from farandole.errors import CommunicationError
from farandole.run.flight import Flight

VARIABLE = "FARANDOLE_DUMP"
FORMAT, VERSION = "farandole.flight", 1
_communicators = itertools.count()


class Dump:
    """The file of one rank of one communicator."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._number = next(_communicators)
        self._lock = threading.Lock()
        self._written: str | None = None  # why the communicator was broken then; "none" if it was not

    def write(self, error: CommunicationError, read: Callable[[], Flight]) -> CommunicationError:
        """``error`` itself, or with the file's path in its message, and as its fact ``dump``, if one was asked for."""
        folder = os.environ.get(VARIABLE)
        if not folder:
            return error
        name = f"farandole-rank{self._rank}-pid{os.getpid()}-{self._number}.json"
        path = Path(folder) / name
        try:
            with self._lock:
                flight = read()
                if self._written is None or (self._written == "none" and flight.failure != "none"):
                    _replace(path, self._encoded(error, flight))
                    self._written = flight.failure
        except OSError as refused:
            return _with(error, f"The last calls could not be written to {path}: {refused.strerror}", None)
        return _with(error, f"The last calls of all ranks are in {path}", str(path))

    def _encoded(self, error: CommunicationError, flight: Flight) -> bytes:
        whole = {
            "format": FORMAT,
            "version": VERSION,
            "made_by": f"farandole {farandole.__version__}",
            "rank": self._rank,
            "pid": os.getpid(),
            "error": {"type": type(error).__name__, "message": str(error)},
            "flight": flight,
        }
        return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"


def _with(error: CommunicationError, sentence: str, path: str | None) -> CommunicationError:
    return type(error)(f"{error}. {sentence}", **error.facts, dump=path)


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
