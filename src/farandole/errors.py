"""Every exception that farandole raises, in one place.

    FarandoleError
    ├── UsageError (ValueError)         a call that cannot be carried out as written
    │   ├── UnknownNameError            no such algorithm, collective, dtype, op, ...; says what is near
    │   ├── WorldSizeError              a shape that does not fit the world size; says which sizes fit
    │   ├── OptionError                 an option of an algorithm that is missing, unknown or malformed
    │   ├── LengthError                 a buffer of the wrong length, or one that is not contiguous
    │   └── UnsupportedError            a dtype and op that do not go together
    ├── ScheduleError                   a schedule or program that the verifier rejects; holds its problems
    ├── FormatError (ValueError)        a file that cannot be read; says where in it
    └── CommunicationError (RuntimeError)
        ├── RendezvousError             ranks did not find each other; says who is missing
        ├── MismatchError               ranks made different calls; says both
        ├── PeerLostError               a rank died; says which one, and in which call
        ├── TimeLimitError              a rank did not arrive before the deadline; says which one
        ├── ClosedError                 the communicator is closed, or an earlier error has broken it
        └── ResourceError               too little memory, or another limit of this machine; says how much is needed

A message names who (rank 2), what (expected, got), where (round 5, chunk 3), the rule and the way out.
The same facts are attributes, in ``facts``, so that programs and tests need not read the message.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class FarandoleError(Exception):
    """The root of the tree; ``facts`` holds what the message says, by name."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


class UsageError(FarandoleError, ValueError):
    """A call that cannot be carried out as written."""


class UnknownNameError(UsageError):
    """A name that is not one of those on offer."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
        super().__init__(f"no {what} is called {name!r}; {hint}", what=what, name=name, known=names)


class WorldSizeError(UsageError):
    """A shape that does not fit the number of ranks."""


class OptionError(UsageError):
    """An option of an algorithm that is unknown or malformed."""


class LengthError(UsageError):
    """A buffer of the wrong length or memory layout."""


class UnsupportedError(UsageError):
    """A dtype, an op, or the two together, that cannot be reduced."""


class ScheduleError(FarandoleError):
    """A schedule or a program that the verifier rejects."""


class FormatError(FarandoleError, ValueError):
    """A file that is not what it should be."""


class CommunicationError(FarandoleError, RuntimeError):
    """Something went wrong between the ranks."""


class RendezvousError(CommunicationError):
    """The ranks of a job did not find each other in time."""


class MismatchError(CommunicationError):
    """Two ranks made different calls where they had to make the same one."""


class PeerLostError(CommunicationError):
    """A rank died."""


class TimeLimitError(CommunicationError):
    """A rank did not arrive before the deadline."""


class ClosedError(CommunicationError):
    """The communicator can no longer be used."""


class ResourceError(CommunicationError):
    """A limit of this machine stands in the way."""
