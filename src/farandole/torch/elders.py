"""What the ranks of a new group know of each other from an older one, so that none waits for a rank that is gone.

A group is made by all its ranks together, each of which waits for the others as long as its timeout says. One that has
died, or has left the group that they come from, will not come; the older group knows.
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole.errors import CommunicationError
from farandole.run.engine import Engine
from farandole.run.failures import CLOSED, LOST
from farandole.run.meeting import Known
from farandole.run.processes import NO_HANDLE, has_ended


def known(engine: Engine | None, members: Sequence[int], what: str, timeout_s: float) -> Known:
    """What the engine of an older group knows of some of its ranks, while they meet for ``what``.

    That calls have failed in the older group is no reason against a new one.
    """
    if engine is None:
        return Known()
    handles = engine.known(members, what, timeout_s).handles

    def trouble() -> CommunicationError | None:
        for member, handle in zip(members, handles, strict=True):
            if handle != NO_HANDLE and has_ended(handle):
                return engine.error(LOST, member, timeout_s, what)
        gone = [member for member in members if member != engine.rank and engine.has_gone(member)]
        return engine.error(CLOSED, gone[0], timeout_s, what) if gone else None

    return Known(handles, trouble)
