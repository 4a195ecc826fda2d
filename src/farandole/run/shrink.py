"""Going on after a loss: the ranks that are left make a smaller communicator, in the same processes.

First the roll is called, so that all agree on who is left; then these ranks meet as any ranks do, and each watches
the processes of the others. If one more dies on the way, they begin again with those that are left, until the
deadline. The ranks are numbered anew, in their old order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from farandole.errors import PeerLostError, RendezvousError
from farandole.run import roll
from farandole.run.meeting import Known
from farandole.run.rendezvous import GRACE_S

if TYPE_CHECKING:
    from farandole.run.communicator import Communicator
    from farandole.run.parts import MakePart


def shrunk(
    roster: roll.Roster, key: str, make_part: MakePart, timeout_s: float
) -> tuple[Communicator, tuple[int, ...]]:
    """A communicator of the ranks that are left, and the numbers that they had, by rank.

    Raises RendezvousError where they do not come together within ``timeout_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        agreed = roll.call(roster, key, deadline, timeout_s)
        left_s = deadline - time.monotonic()
        known = Known(tuple(roster.handles[rank] for rank in agreed.ranks))
        try:
            part = make_part(
                agreed.ranks.index(roster.rank),
                len(agreed.ranks),
                f"shrunk {agreed.word}",
                meeting_timeout_s=max(left_s, GRACE_S),
                known=known,
            )
        except (PeerLostError, RendezvousError):
            if time.monotonic() >= deadline:
                raise
            continue  # one more was lost on the way
        return part, agreed.ranks
