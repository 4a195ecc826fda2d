"""How this process ends: whether by an exception, so that the other ranks hear which one it was.

A communicator that a ``with`` block leaves by an exception knows it. One that is closed when the interpreter ends
has to ask: Python keeps an exception that nobody handled in ``sys``, and so does whoever runs a rank's function.
"""

from __future__ import annotations

import sys
import threading

_noted: list[str] = []


def note(error: BaseException) -> None:
    """This process will end because of ``error``."""
    _noted.append(name_of(type(error), error))


def name_of(kind: type[BaseException] | None, error: BaseException | None) -> str:
    """The name of an exception; empty for none, and for an exit that means success."""
    if kind is None or (isinstance(error, SystemExit) and error.code in {None, 0}):
        return ""
    return kind.__name__


def unhandled() -> str:
    """The name of the exception that is ending this process, or an empty text."""
    if any(_noted):
        return _noted[-1]
    # The main thread counts as ended when the interpreter begins to shut down. Before that, and in an interactive
    # session, an exception that was printed is an old story.
    if threading.main_thread().is_alive() or hasattr(sys, "ps1") or sys.flags.interactive:
        return ""
    return name_of(getattr(sys, "last_type", None), getattr(sys, "last_value", None))
