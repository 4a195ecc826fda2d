"""Communicators of some of the ranks of another one.

The ranks know each other already. So they need not wait for one that dies, or leaves the whole, before it comes to
their meeting: each watches the processes of the others, and what becomes of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from farandole.errors import ClosedError, PeerLostError
from farandole.run.meeting import Known

if TYPE_CHECKING:
    from farandole.run.communicator import Communicator
    from farandole.run.engine import Engine


class MakePart(Protocol):
    """Makes a communicator of some of the ranks.

    ``name`` is unlike that of any other part; ``known`` is what is known of these ranks.
    """

    def __call__(
        self,
        rank: int,
        size: int,
        name: str,
        *,
        known: Known,
        meeting_timeout_s: float | None = None,
    ) -> Communicator:
        """The communicator of which this process is rank ``rank``."""
        ...


def part_of(
    engine: Engine | None, members: Sequence[int], rank: int, name: str, timeout_s: float, make_part: MakePart
) -> Communicator:
    """The communicator of ``members``, in that order, for rank ``rank``, which is one of them.

    ``engine`` is that of the whole, and ranks are numbered as there. Raises PeerLostError where a member dies before
    all have met, what has gone wrong with the whole meanwhile, and what a meeting raises besides.
    """
    known = Known() if engine is None else engine.known(members, "split", timeout_s)
    try:
        return make_part(members.index(rank), len(members), name, known=known)
    except PeerLostError as error:
        if "states" in error.facts:  # it comes from the whole
            raise
        # Whoever has ended may have done so because of what went wrong in the whole, which is the better news.
        trouble = known.trouble()
        if trouble is not None and not isinstance(trouble, ClosedError):
            raise trouble from None
        peer, pid = members[error.facts["peer"]], error.facts["pid"]
        raise PeerLostError(
            f"rank {rank}, split: rank {peer} (pid {pid}) has died while ranks {', '.join(map(str, sorted(members)))} "
            "were meeting",
            rank=rank,
            peer=peer,
            pid=pid,
        ) from None
