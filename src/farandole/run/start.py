"""Starting: from what the launcher left in the environment to a communicator."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping

from farandole import _core
from farandole.errors import UsageError
from farandole.run.communicator import Communicator
from farandole.run.engine import DEFAULT_SLOT_BYTES, Engine
from farandole.run.environment import meeting_key, world
from farandole.run.rendezvous import meet

PAGE = 4096

_made = itertools.count()


def init(
    *,
    timeout_s: float = 300.0,
    meeting_timeout_s: float = 60.0,
    slot_bytes: int = DEFAULT_SLOT_BYTES,
    environ: Mapping[str, str] | None = None,
) -> Communicator:
    """Make a communicator of all ranks that this job's launcher has started on this host.

    Every rank calls it, equally often. Launchers are ``farandole launch``, torchrun, mpirun and srun; a
    process that none of them has started is a world of one rank.

    ``timeout_s`` is how long a call waits for a late rank, ``meeting_timeout_s`` how long this one waits for
    all ranks to come. ``slot_bytes``, the same on all ranks, is each rank's part of the shared memory: whole
    pages; messages that are larger go through it in slices.

    Raises RendezvousError where ranks do not find each other, ResourceError where memory is short.
    """
    if slot_bytes < PAGE or slot_bytes % PAGE:
        raise UsageError(f"slot_bytes must be a multiple of {PAGE}, at least {PAGE}, not {slot_bytes}", got=slot_bytes)
    place = world(os.environ if environ is None else environ)
    if place is None or place.size == 1:
        return Communicator(0, 1, None, timeout_s)
    return connect(
        place.rank,
        place.size,
        meeting_key(place.key, f"init {next(_made)}"),
        timeout_s=timeout_s,
        meeting_timeout_s=meeting_timeout_s,
        slot_bytes=slot_bytes,
    )


def connect(
    rank: int,
    size: int,
    key: str,
    *,
    timeout_s: float = 300.0,
    meeting_timeout_s: float = 60.0,
    slot_bytes: int = DEFAULT_SLOT_BYTES,
) -> Communicator:
    """Make a communicator of ``size`` processes that agree on ``key`` by other means than a launcher's."""
    if size == 1:
        return Communicator(0, 1, None, timeout_s)
    meeting = meet(rank, size, key, meeting_timeout_s, _core.segment_bytes(size, slot_bytes))
    try:
        return Communicator(rank, size, Engine(meeting, slot_bytes), timeout_s)
    except BaseException:
        meeting.close()
        raise
