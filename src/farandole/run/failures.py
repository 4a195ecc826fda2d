"""Failures of a communicator, in words: what the extension reports as a number becomes one of our errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from farandole.errors import (
    ClosedError,
    CommunicationError,
    MismatchError,
    PeerLostError,
    TimeLimitError,
)
from farandole.run.flight import LEFT
from farandole.run.hosting import spell

State = tuple[int, int, str]  # the number of a rank's call, how it has left (0: not, else LEFT), the call in words

MISMATCH, LOST, LATE, INTERRUPTED, CLOSED, FORKED = 1, 2, 3, 4, 5, 6  # Failure in src/core/segment.hpp

_MANY = 8  # ranks, of which more are spelled in runs


def failure_error(
    failure: int,
    *,
    rank: int,
    peer: int,
    first: int,
    pids: Sequence[int],
    states: Sequence[State],
    timeout_s: float,
    what: str = "",
    ending: str = "",
) -> CommunicationError:
    """The error for ``failure`` at ``rank``, which is about ``peer`` and was noticed by ``first`` before all others.

    ``states`` are where the ranks were then. ``what`` is the call in words, by default that of ``states``.
    ``ending`` is the exception that ended ``peer``, if one did.
    """
    where = "; ".join(_grouped(states))
    facts: dict[str, Any] = {"rank": rank, "peer": peer, "first": first, "states": states}
    number, _, text = states[rank]
    mine = f"rank {rank}, {what or (f'call #{number} {text}' if number else 'its first call')}"
    if first not in {-1, rank}:
        mine += f" (rank {first} noticed it first)"
    if failure == MISMATCH:
        return MismatchError(
            f"{mine}: ranks made different calls: {where}. All ranks must make the same calls, in the same order,"
            " with the same lengths, dtype, op, root and algorithm",
            **facts,
        )
    # A rank that an exception ends breaks off its own calls in flight first, as one does that closes.
    if failure == LOST or (failure == CLOSED and ending and peer != rank):
        how = f"was ended by {ending}" if ending else "has died"
        facts["ending"] = ending
        return PeerLostError(f"{mine}: rank {peer} (pid {pids[peer]}) {how}; {where}", pid=pids[peer], **facts)
    if failure == LATE:
        if peer < 0:
            return TimeLimitError(f"{mine}: nothing came within {timeout_s:g} s; {where}", timeout_s=timeout_s, **facts)
        return TimeLimitError(
            f"{mine}: rank {peer} did not arrive within {timeout_s:g} s; {where}. Give the call a longer timeout if"
            f" rank {peer} is only slow",
            timeout_s=timeout_s,
            **facts,
        )
    if failure == CLOSED:
        how = LEFT[states[peer][1]] if 0 <= peer < len(states) and states[peer][1] < len(LEFT) else ""
        return ClosedError(f"{mine}: rank {peer} has {how or 'closed'} the communicator; {where}", **facts)
    return CommunicationError(f"{mine}: rank {first} was interrupted; {where}", **facts)


def forked_error(rank: int, pid: int, what: str = "") -> ClosedError:
    """The error for a call in a process that was forked from rank ``rank``, whose pid is ``pid``."""
    return ClosedError(
        f"{what or 'this call'} is of a communicator that was made before process {os.getpid()} was forked from rank "
        f"{rank} (pid {pid}), and only that process is a rank: call farandole.init() after forking, or start "
        "processes by spawn instead of fork",
        rank=rank,
        pid=pid,
        state="forked",
    )


def _grouped(states: Sequence[State]) -> Iterator[str]:
    """Where the ranks are, in words; those that are in the same place together."""
    places: dict[str, list[int]] = {}
    for rank, (call, left, text) in enumerate(states):
        place = f"at #{call} {text}" if call else "at no call yet"
        places.setdefault(f"{place}, and {LEFT[left]}" if 0 < left < len(LEFT) else place, []).append(rank)
    for place, ranks in places.items():
        one = len(ranks) == 1
        numbers = spell(ranks) if len(ranks) > _MANY else ", ".join(map(str, ranks))
        yield f"{'rank' if one else 'ranks'} {numbers} {'is' if one else 'are'} {place}"
