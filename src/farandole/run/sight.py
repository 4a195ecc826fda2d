"""Communicators as a person or a program reads them: rows of text, and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from farandole.ops import OPS
from farandole.run.flight import CallRecord, Flight
from farandole.run.hosting import spell
from farandole.run.outside import Communicator
from farandole.run.verdict import Rank, ranks_of, verdict
from farandole.units import format_size, format_time

HEADINGS = ("rank", "pid", "state", "for", "call", "seq", "waits for")
CALL_HEADINGS = ("rank", "seq", "call", "size", "began", "took", "kind", "outcome")
_CALL = re.compile(r"(\w+)\((.*)\)")


@dataclass(frozen=True, slots=True)
class Sight:
    """A communicator, where its ranks are, and what holds them up."""

    number: int
    flight: Flight
    ranks: tuple[Rank, ...]
    verdict: tuple[str, ...]


def see(communicator: Communicator) -> Sight:
    """What there is to see of a communicator."""
    ranks = ranks_of(communicator.flight, communicator.processes)
    sentences = tuple(verdict(communicator.flight, ranks))
    return Sight(communicator.number, communicator.flight, tuple(ranks), sentences)


def heading(sight: Sight) -> str:
    """Which communicator it is, in a line."""
    calls = max(rank.counters.calls for rank in sight.flight.ranks)
    messages = sum(rank.counters.messages for rank in sight.flight.ranks)
    return f"communicator {sight.number}: {sight.flight.size} ranks, {calls} calls, {messages} messages"


def rows(sight: Sight) -> list[Sequence[str]]:
    """A row for each rank, under HEADINGS."""
    return [
        (
            str(rank.rank),
            str(rank.pid),
            rank.state if rank.process.state != "T" else f"{rank.state}, stopped",
            "" if rank.for_s is None else format_time(rank.for_s),
            rank.call or "-",
            str(rank.seq or "-"),
            _waits(rank),
        )
        for rank in sight.ranks
    ]


def call_rows(sight: Sight, last: int) -> list[Sequence[str]]:
    """Rows for the ``last`` calls and messages of each rank, under CALL_HEADINGS."""
    found: list[Sequence[str]] = []
    for rank in sight.flight.ranks:
        records = sorted((*rank.calls, *rank.messages), key=lambda record: -record.begin_ns)
        for record in records[:last]:
            took = None if record.end_ns is None else (record.end_ns - record.begin_ns) / 1e9
            found.append(
                (
                    str(rank.rank),
                    f"#{record.number}",
                    record.text,
                    format_size(record.bytes),
                    f"{format_time((sight.flight.now_ns - record.begin_ns) / 1e9)} ago",
                    "-" if took is None else format_time(max(took, 0.0)),
                    record.kind,
                    "fine" if record.outcome == "none" else record.outcome,
                )
            )
    return found


def as_json(seen: Sequence[Sight]) -> dict[str, Any]:
    """Everything: ``ranks`` of all communicators, and ``communicators`` with verdicts."""
    return {
        "ranks": [row for sight in seen for row in _rank_rows(sight)],
        "communicators": [
            {
                "communicator": sight.number,
                "size": sight.flight.size,
                "slot_bytes": sight.flight.slot_bytes,
                "failure": None if sight.flight.failure == "none" else sight.flight.failure,
                "first": sight.flight.first,
                "peer": sight.flight.peer,
                "now_ns": sight.flight.now_ns,
                "verdict": list(sight.verdict),
            }
            for sight in seen
        ],
    }


def _rank_rows(sight: Sight) -> Iterator[dict[str, Any]]:
    for rank, flight in zip(sight.ranks, sight.flight.ranks, strict=True):
        counters = flight.counters
        yield {
            "communicator": sight.number,
            "rank": rank.rank,
            "pid": rank.pid,
            "process_state": rank.process.state,
            "state": rank.state,
            "call": rank.call,
            "seq": rank.seq,
            "for_s": rank.for_s,
            "waits_for": list(rank.waits_for),
            "waits_s": rank.waits_s,
            "queued": flight.queued,
            "ending": flight.ending,
            "counters": {name: getattr(counters, name) for name in counters.__slots__},
            "calls": [_record(record) for record in flight.calls],
            "messages": [_record(record) for record in flight.messages],
        }


def _record(record: CallRecord) -> dict[str, Any]:
    fields = {name: getattr(record, name) for name in record.__slots__}
    return {**fields, **call_parts(record.text)} if record.kind in {"foreground", "background"} else fields


def call_parts(text: str) -> dict[str, Any]:
    """What a collective's text says: ``collective``, ``dtype``, ``op`` and ``algorithm``; None for what it has not.

    >>> call_parts("reduce(float32[4 x 1024], sum, tree:shape=chain,width=2, root=1)")["algorithm"]
    'tree:shape=chain,width=2'
    """
    match = _CALL.fullmatch(text)
    parts = match[2].split(", ") if match else []
    first = parts[0].partition("[")[0] if parts and "[" in parts[0] else None
    rest = parts[1:] if first else parts
    op = rest[0] if rest and rest[0] in OPS else None
    rest = rest[1:] if op else rest
    return {
        "collective": match[1] if match else None,
        "dtype": first,
        "op": op,
        "algorithm": rest[0] if rest else None,
    }


def _waits(rank: Rank) -> str:
    if not rank.waits_for:
        return "-"
    since = "" if rank.waits_s is None else f", {format_time(rank.waits_s)}"
    return f"{spell(rank.waits_for)}{since}"
