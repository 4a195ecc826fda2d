"""Starting: from what the launcher left in the environment to a communicator."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Mapping
from dataclasses import replace

from farandole import _core
from farandole.errors import UsageError
from farandole.run.choices import Choices, agreed, announcement
from farandole.run.communicator import Communicator
from farandole.run.engine import DEFAULT_SLOT_BYTES, Engine
from farandole.run.environment import meeting_key, world
from farandole.run.executor import Executor
from farandole.run.meeting import Known, Meeting
from farandole.run.rendezvous import NOTHING_KNOWN, meet
from farandole.run.requests import Place
from farandole.run.shared import SharedArrays

PAGE = 4096
DETERMINISTIC = "FARANDOLE_DETERMINISTIC"
CACHES = "FARANDOLE_CACHES"
_FAR = {"": None, "shared": False, "apart": True}
TIMEOUT_S = 300.0
MEETING_TIMEOUT_S = 60.0

_made = itertools.count()


def init(
    *,
    timeout_s: float = TIMEOUT_S,
    meeting_timeout_s: float = MEETING_TIMEOUT_S,
    slot_bytes: int = DEFAULT_SLOT_BYTES,
    deterministic: bool | None = None,
    environ: Mapping[str, str] | None = None,
) -> Communicator:
    """Make a communicator of all ranks that this job's launcher has started on this host.

    Every rank calls it, equally often. Launchers are ``farandole launch``, torchrun, mpirun and srun; a
    process that none of them has started is a world of one rank.

    ``timeout_s`` is how long a call waits for a late rank, ``meeting_timeout_s`` how long this one waits for
    all ranks to come. ``slot_bytes``, the same on all ranks, is each rank's part of the shared memory: whole
    pages; messages that are larger go through it in slices.

    Results are the same on all ranks and in every run in any case. If ``deterministic``, they do not depend on the
    length of a message either: contributions are added in the order of the ranks, always, and an algorithm that does
    otherwise is an error. Rank 0 decides; None stands for its environment's FARANDOLE_DETERMINISTIC (0 or 1).

    Raises RendezvousError where ranks do not find each other, PeerLostError where one dies meanwhile, ResourceError
    where memory is short, and FormatError where rank 0's profile is malformed.
    """
    check_slot_bytes(slot_bytes)
    place = world(os.environ if environ is None else environ)
    key = "" if place is None else meeting_key(place.key, f"init {next(_made)}")
    rank, size = (0, 1) if place is None else (place.rank, place.size)
    return connect(
        rank,
        size,
        key,
        timeout_s=timeout_s,
        meeting_timeout_s=meeting_timeout_s,
        slot_bytes=slot_bytes,
        deterministic=deterministic,
        environ=environ,
    )


def check_slot_bytes(slot_bytes: int) -> None:
    """Raise UsageError for a slot that is not made of whole pages, one at least."""
    if slot_bytes < PAGE or slot_bytes % PAGE:
        raise UsageError(f"slot_bytes must be a multiple of {PAGE}, at least {PAGE}, not {slot_bytes}", got=slot_bytes)


def connect(
    rank: int,
    size: int,
    key: str,
    *,
    timeout_s: float = TIMEOUT_S,
    meeting_timeout_s: float = MEETING_TIMEOUT_S,
    slot_bytes: int = DEFAULT_SLOT_BYTES,
    deterministic: bool | None = None,
    environ: Mapping[str, str] | None = None,
    known: Known = NOTHING_KNOWN,
) -> Communicator:
    """Make a communicator of ``size`` processes that agree on ``key`` by other means than a launcher's.

    ``environ`` says where rank 0 finds its profile; see :mod:`farandole.run.choices`. What is ``known`` of
    the processes may end their meeting before its time.
    """
    usual_s = meeting_timeout_s

    def make_part(
        rank: int, size: int, name: str, *, known: Known, meeting_timeout_s: float | None = None
    ) -> Communicator:
        return connect(
            rank,
            size,
            meeting_key(key, name),
            timeout_s=timeout_s,
            meeting_timeout_s=usual_s if meeting_timeout_s is None else meeting_timeout_s,
            slot_bytes=slot_bytes,
            deterministic=deterministic,
            environ=environ,
            known=known,
        )

    place = Place(rank, size)
    if size == 1:
        return Communicator(Executor(place, None, timeout_s, Choices(1, 1, {}), SharedArrays(None)), make_part, key)
    variables = os.environ if environ is None else environ
    ordered = is_deterministic(variables) if deterministic is None else deterministic
    far = caches_apart(variables)
    word = announcement(variables, size, slot_bytes, deterministic=ordered) if rank == 0 else ""

    def renounce(meeting: Meeting) -> None:
        with contextlib.suppress(Exception):
            Engine(meeting, slot_bytes).close(0)

    known = replace(known, renounce=renounce)
    meeting = meet(rank, size, key, meeting_timeout_s, _core.segment_bytes(size, slot_bytes), word, known)

    def meet_over(size_bytes: int, name: str) -> Meeting:
        known = engine.known(range(size), "empty", timeout_s)
        return meet(rank, size, meeting_key(key, name), meeting_timeout_s, size * size_bytes, known=known)

    try:
        choices = agreed(meeting.word, size, meeting.cores)
        _check_agreed(rank, deterministic, choices)
        engine = Engine(meeting, slot_bytes, deterministic=choices.deterministic, far=far)
        executor = Executor(place, engine, timeout_s, choices, SharedArrays(meet_over))
        return Communicator(executor, make_part, key)
    except BaseException:
        renounce(meeting)  # the others have their communicator, and must not wait for this rank in it
        meeting.close()
        raise


def is_deterministic(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for communicators that are; UsageError where it is not clear."""
    value = environ.get(DETERMINISTIC, "")
    if value not in {"", "0", "1"}:
        raise UsageError(f"{DETERMINISTIC} must be 0 or 1, not {value!r}", got=value)
    return value == "1"


def caches_apart(environ: Mapping[str, str]) -> bool | None:
    """Whether the environment says that the cores share no cache; None where it says nothing."""
    value = environ.get(CACHES, "")
    if value not in _FAR:
        raise UsageError(f"{CACHES} must be shared or apart, or not set, not {value!r}", got=value)
    return _FAR[value]


def _check_agreed(rank: int, deterministic: bool | None, choices: Choices) -> None:
    if deterministic is not None and deterministic != choices.deterministic:
        raise UsageError(
            f"rank {rank} passes deterministic={deterministic}, and rank 0, which decides, has chosen"
            f" {choices.deterministic}; pass the same on every rank",
            rank=rank,
        )
