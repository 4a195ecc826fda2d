"""Who waits for whom in a communicator, and why, in words: what a person asks of a job that does not go on.

A rank that waits points at the rank it waits for, which may itself wait for another. At the end of the chain is a
rank that does not wait, because it is dead, stopped, computing or done, or a circle of messages; that is what holds
up the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from farandole.run.flight import CallRecord, Flight, RankFlight
from farandole.run.hosting import spell_ranks
from farandole.run.outside import Process
from farandole.units import format_time

_SHORT_S = 0.05  # less than that is no wait worth a word
_PROCESS_STATES = {
    "R": "it is running (R)",
    "S": "it sleeps (S)",
    "D": "it waits for a device (D)",
    "T": "it is stopped (T)",
    "t": "a debugger holds it (t)",
    "I": "it is idle (I)",
}


@dataclass(frozen=True, slots=True)
class Rank:
    """Where a rank is: ``state`` is ``running`` (in a call), ``idle``, ``closed``, ``failed``, ``shrunk`` or ``dead``.

    ``call`` is the call that it is in, or was in last, and ``seq`` its number; ``for_s`` says for how long it has
    been in it, or in none. ``waits_for`` are ranks, since ``waits_s``.
    """

    rank: int
    pid: int
    process: Process
    state: str
    call: str
    seq: int
    for_s: float | None
    waits_for: tuple[int, ...]
    waits_s: float | None


def ranks_of(flight: Flight, processes: Sequence[Process]) -> list[Rank]:
    """Where every rank of a communicator is."""
    return [_rank_of(flight, rank, process) for rank, process in zip(flight.ranks, processes, strict=True)]


def _rank_of(flight: Flight, rank: RankFlight, process: Process) -> Rank:
    message = next((record for record in rank.messages if record.is_running and record.is_waited_for), None)
    last = rank.calls[-1] if rank.calls else None
    current = last if last is not None and last.is_running else message
    shown = current or _latest(last, rank.messages[-1] if rank.messages else None)
    state = "running" if current else "idle"
    if rank.left:
        state = rank.left
    elif rank.pid == 0:
        state = "starting"
    elif not process.is_alive:
        state = "dead"
    waits_for, since = _waits(flight, rank, last, message)
    ended = None if shown is None or shown.end_ns is None else shown.end_ns
    began = ended if ended is not None else None if shown is None else shown.begin_ns
    return Rank(
        rank.rank,
        rank.pid,
        process,
        state,
        "" if shown is None else shown.text,
        0 if shown is None else shown.number,
        None if began is None else (flight.now_ns - began) / 1e9,
        waits_for if state == "running" else (),
        (flight.now_ns - since) / 1e9 if waits_for and state == "running" else None,
    )


def _latest(*records: CallRecord | None) -> CallRecord | None:
    there = [record for record in records if record is not None]
    return max(there, key=lambda record: record.end_ns or record.begin_ns, default=None)


def _waits(
    flight: Flight, rank: RankFlight, last: CallRecord | None, message: CallRecord | None
) -> tuple[tuple[int, ...], int]:
    if last is not None and last.is_running and rank.waits_for is not None:
        return (rank.waits_for,), rank.waits_since_ns
    if message is None:
        return (), 0
    others = tuple(other for other in range(flight.size) if other != rank.rank)
    return (others if message.peer is None else (message.peer,)), message.begin_ns


def verdict(flight: Flight, ranks: Sequence[Rank]) -> list[str]:
    """What holds the ranks up, as sentences, the most important first; never empty."""
    sentences = []
    if flight.failure != "none":
        about = "" if flight.peer in {None, flight.first} else f", about rank {flight.peer}"
        first = "a rank" if flight.first is None else f"rank {flight.first}"
        sentences.append(f"the communicator is broken ({flight.failure}): {first} noticed it first{about}")
    waiting = {rank.rank: rank for rank in ranks if rank.waits_for}
    held: dict[int, list[int]] = {}
    circles: set[frozenset[int]] = set()
    for rank in waiting:
        ends, _ = _follow(rank, waiting)
        for end in ends:
            held.setdefault(end, []).append(rank)
        if not ends:
            circles.add(_core_of(rank, waiting))
    sentences += [_sentence(ranks[end], held[end], waiting, flight) for end in sorted(held)]
    sentences += [_circle(sorted(circle), waiting) for circle in sorted(circles, key=sorted)]
    gone = [rank for rank in ranks if rank.state in {"dead", "failed"} and rank.rank not in held]
    sentences += [f"rank {rank.rank} {_why(rank, flight)}" for rank in gone]
    return sentences or [_quiet(ranks)]


def _follow(start: int, waiting: Mapping[int, Rank]) -> tuple[set[int], frozenset[int]]:
    """The ranks that wait for nobody and that ``start`` waits for in the end; and all waiting ranks on the way."""
    seen: set[int] = set()
    ends: set[int] = set()
    ahead = [start]
    while ahead:
        rank = ahead.pop()
        if rank not in waiting:
            ends.add(rank)
        elif rank not in seen:
            seen.add(rank)
            ahead.extend(waiting[rank].waits_for)
    return ends, frozenset(seen)


def _core_of(start: int, waiting: Mapping[int, Rank]) -> frozenset[int]:
    """Of all that ``start`` waits for, those that wait for each other and for nobody else."""
    seen = _follow(start, waiting)[1]
    return min((_follow(rank, waiting)[1] for rank in seen), key=len)


def _sentence(end: Rank, held: Iterable[int], waiting: Mapping[int, Rank], flight: Flight) -> str:
    held = sorted(held)
    longest = max(waiting[rank].waits_s or 0.0 for rank in held)
    one = len(held) == 1
    how_long = "" if longest < _SHORT_S else f" (for {format_time(longest)})"
    return f"{spell_ranks(held)} {'waits' if one else 'wait'} for rank {end.rank}{how_long}, which {_why(end, flight)}"


def _why(rank: Rank, flight: Flight) -> str:
    """What became of a rank, as the end of a sentence."""
    last = f"; its last call was #{rank.seq} {rank.call}" if rank.call else ""
    if rank.state == "dead":
        was = f" in call #{rank.seq} {rank.call}" if rank.call else ""
        return f"is dead (pid {rank.pid}){f', last seen{was}' if was else ''}"
    if rank.state == "failed":
        ending = flight.ranks[rank.rank].ending
        return f"was ended by {ending or 'an exception'}{last}"
    if rank.state in {"closed", "shrunk"}:
        return f"has {rank.state} the communicator{last}"
    if rank.state == "starting":
        return "has not begun yet"
    process = _PROCESS_STATES.get(rank.process.state, f"its process is in state {rank.process.state}")
    since = "" if rank.for_s is None else f" since {format_time(rank.for_s)}"
    if rank.state == "running":
        return f"is at work in call #{rank.seq} {rank.call}{since}; {process}"
    return f"is in no call{since}; {process}{last}"


def _circle(ranks: Sequence[int], waiting: Mapping[int, Rank]) -> str:
    where = "; ".join(f"rank {rank} in {waiting[rank].call}" for rank in ranks)
    shortest = min(waiting[rank].waits_s or 0.0 for rank in ranks)
    if shortest < _SHORT_S:
        return f"{spell_ranks(ranks)} are in the middle of a call: {where}"
    return f"{spell_ranks(ranks)} wait for each other since {format_time(shortest)}, and none can go on: {where}"


def _quiet(ranks: Sequence[Rank]) -> str:
    states = sorted({rank.state for rank in ranks})
    groups = [f"{spell_ranks(rank.rank for rank in ranks if rank.state == state)}: {state}" for state in states]
    return f"nobody waits for anybody ({'; '.join(groups)})"
