"""What the flight recorder of a communicator holds: the control part of its segment, read into plain data.

The structs are those of src/core/segment.hpp and src/core/flight.hpp. The bytes may come from another process, a
running one, a hung one or a hostile one, so every size and index is checked before it is used, and texts are made
printable. Nothing is waited for: the bytes are copied twice, and what may have changed in between is left out.

Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a host have in common.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from farandole import _core
from farandole.errors import FormatError

RECORDS, TEXTS, TEXT_BYTES = 64, 68, 192
MOST_RANKS, MOST_SLOT_BYTES, PAGE_BYTES = 4096, 1 << 48, 4096
FAILURES = ("none", "mismatch", "lost", "late", "interrupted", "closed", "forked")
LEFT = ("", "closed", "failed", "shrunk")
KINDS = ("foreground", "background", "send", "receive")
GOES_ON = 0xFF

_HEAD = struct.Struct("=QQIIIIQ")  # magic, failure, claimed, filled, ranks, version, slot_bytes
_LINE = struct.Struct("=QQIII4x32x")  # counter, entered, sleepers, waiters, left, then fingerprints
_SNAPSHOT = struct.Struct(f"=QQ{TEXT_BYTES}s")  # call, left, text
_IDENTITY = struct.Struct("=IIQQQ32x64s")  # pid, counts, started, ticks, ns, ending
_CALLS = struct.Struct("=QQQQQQQiI")  # done, bytes, sent, received, busy, waiting, since, waits_for, queued
_MESSAGES = struct.Struct("=QQQQQ24x")  # begun, done, sent, received, waiting
_RECORD = struct.Struct("=QQQQqiHBB16s")  # number, begin, end, bytes, tag, peer, text, kind, outcome, dtype
_LAST_CALLS = _IDENTITY.size + _CALLS.size + _MESSAGES.size
_LAST_MESSAGES = _LAST_CALLS + RECORDS * _RECORD.size
_TEXTS = _LAST_MESSAGES + RECORDS * _RECORD.size
_FLIGHT_BYTES = _TEXTS + TEXTS * TEXT_BYTES

Clock = tuple[bool, int, int]  # whether ticks are of the processor's counter, what they are now, and now in ns


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call or message of one rank; ``number`` counts from 1, collectives and messages apart.

    ``kind`` is one of KINDS, ``outcome`` one of FAILURES (``none`` is a call that went well) or ``running``. ``peer``
    is the other side of a message, or whom a failure is about. ``end_ns`` is None while it runs.
    """

    number: int
    kind: str
    text: str
    bytes: int
    begin_ns: int
    end_ns: int | None
    outcome: str
    peer: int | None
    is_waited_for: bool

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.outcome == "running"


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums over all calls of a rank so far; what it sent is what it wrote for others to read, messages included."""

    calls: int
    messages: int
    bytes: int
    sent: int
    received: int
    busy_ns: int
    waiting_ns: int


@dataclass(frozen=True, slots=True)
class RankFlight:
    """One rank; ``pid`` is 0 before it has mapped the segment, ``started`` as in /proc/PID/stat.

    ``entered`` is the number of the call that it is or was in, ``left`` one of LEFT, ``ending`` the exception that
    ended it. ``waits_for`` is the rank that its collective waits for, since ``waits_since_ns``.
    """

    rank: int
    pid: int
    started: int
    left: str
    ending: str
    entered: int
    waits_for: int | None
    waits_since_ns: int
    queued: int
    counters: Counters
    calls: tuple[CallRecord, ...]
    messages: tuple[CallRecord, ...]


@dataclass(frozen=True, slots=True)
class Flight:
    """One communicator at the moment ``now_ns``.

    ``failure`` is one of FAILURES: why it is broken, noticed by rank ``first``, about rank ``peer``.
    """

    size: int
    slot_bytes: int
    failure: str
    first: int | None
    peer: int | None
    now_ns: int
    ranks: tuple[RankFlight, ...]


def control_bytes(head: bytes, segment_bytes: int) -> int:
    """How long the control part of a segment is that begins with ``head`` and has ``segment_bytes``.

    Raises FormatError unless it is a segment of this version of farandole, with the fact ``foreign`` if it is none.
    """
    ranks, slot_bytes = _checked_head(head)
    if _core.segment_bytes(ranks, slot_bytes) != segment_bytes:
        raise FormatError(
            f"this is no segment of farandole: it says that it is for {ranks} ranks of {slot_bytes} bytes, which is "
            f"{_core.segment_bytes(ranks, slot_bytes)} bytes, and has {segment_bytes}",
            got=segment_bytes,
        )
    return _core.segment_offsets(ranks, slot_bytes)[-1]


def parse(first: bytes, second: bytes, clock: Clock) -> Flight:
    """What two copies of a control part say, taken one after the other, ``clock`` right after the second.

    Raises FormatError unless they are of this version of farandole and of the right length.
    """
    ranks, slot_bytes = _checked_head(first)
    lines, flights, end = _core.segment_offsets(ranks, slot_bytes)
    if _checked_head(second) != (ranks, slot_bytes) or not len(first) == len(second) == end:
        raise FormatError(
            f"the control part of a segment of {ranks} ranks has {end} bytes, not {len(first)} and {len(second)}",
            expected=end,
            got=(len(first), len(second)),
        )
    failure = _HEAD.unpack_from(second)[1]
    return Flight(
        ranks,
        slot_bytes,
        _name(FAILURES, failure & 0xFFFF),
        _rank((failure >> 40 & 0xFFFF) - 1, ranks),
        _rank((failure >> 16 & 0xFFFF) - 1, ranks),
        clock[2],
        tuple(
            _parse_rank(rank, ranks, first, second, lines + rank * _LINE.size, flights + rank * _FLIGHT_BYTES, clock)
            for rank in range(ranks)
        ),
    )


def _checked_head(head: bytes) -> tuple[int, int]:
    if len(head) < _HEAD.size:
        raise FormatError(f"this is no segment of farandole: it has {len(head)} bytes", got=len(head), foreign=True)
    magic, _, _, _, ranks, version, slot_bytes = _HEAD.unpack_from(head)
    if magic != _core.SEGMENT_MAGIC:
        raise FormatError("this is no segment of farandole: it does not begin as one", got=magic, foreign=True)
    if version != _core.SEGMENT_VERSION:
        raise FormatError(
            f"this segment has version {version}, and this farandole reads version {_core.SEGMENT_VERSION}: "
            "use the farandole that the job runs",
            expected=_core.SEGMENT_VERSION,
            got=version,
        )
    if not 1 <= ranks <= MOST_RANKS or slot_bytes % PAGE_BYTES or not 0 < slot_bytes <= MOST_SLOT_BYTES:
        raise FormatError(f"this segment is damaged: {ranks} ranks of {slot_bytes} bytes", got=(ranks, slot_bytes))
    return ranks, slot_bytes


def _parse_rank(rank: int, ranks: int, first: bytes, second: bytes, line: int, at: int, clock: Clock) -> RankFlight:
    entered_then = _LINE.unpack_from(first, line)[1]
    _, entered, _, _, left = _LINE.unpack_from(second, line)
    pid, counts, started, ticks, ns, ending = _IDENTITY.unpack_from(second, at)
    calls_at, messages_at = at + _IDENTITY.size, at + _IDENTITY.size + _CALLS.size
    done, size, sent, received, busy, waiting, since, waits_for, queued = _CALLS.unpack_from(second, calls_at)
    begun, _, sent_too, received_too, waiting_too = _MESSAGES.unpack_from(second, messages_at)
    begun_then = _MESSAGES.unpack_from(first, messages_at)[0]
    time = _Time(bool(counts), ticks, ns, clock)
    calls = _records(first, at + _LAST_CALLS, entered_then, entered)
    messages = _records(first, at + _LAST_MESSAGES, begun_then, begun)
    return RankFlight(
        rank=rank,
        pid=pid if pid < 2**31 else 0,
        started=started,
        left=_name(LEFT, left),
        ending=_text(ending),
        entered=entered,
        waits_for=_rank(waits_for, ranks),
        waits_since_ns=time.moment(since),
        queued=queued,
        counters=Counters(
            done,
            begun,
            size,
            sent + sent_too,
            received + received_too,
            time.span(busy),
            time.span(waiting + waiting_too),
        ),
        calls=tuple(_call(row, first, at + _TEXTS, ranks, time) for row in calls),
        messages=tuple(_message(row, ranks, time) for row in messages),
    )


def _records(copy: bytes, at: int, last_then: int, last: int) -> Iterator[tuple[int, ...]]:
    """The rows that were whole when they were copied, the oldest first.

    The last one was written before the copy; one that is older by RECORDS - 1 may have been in the course of being
    overwritten at its end.
    """
    for number in range(max(1, last + 2 - RECORDS, last_then + 2 - RECORDS), last_then + 1):
        row = _RECORD.unpack_from(copy, at + number % RECORDS * _RECORD.size)
        if row[0] == number:
            yield row


def _call(row: tuple[int, ...], copy: bytes, texts: int, ranks: int, time: _Time) -> CallRecord:
    number, begin, end, size, _, peer, place, kind, outcome = row[:9]
    text = copy[texts + place * TEXT_BYTES :][:TEXT_BYTES] if place < TEXTS else b""
    return CallRecord(
        number,
        _name(KINDS, kind),
        _text(text),
        size,
        time.moment(begin),
        None if outcome == GOES_ON else time.moment(end),
        "running" if outcome == GOES_ON else _name(FAILURES, outcome),
        _rank(peer, ranks),
        kind == 0,
    )


def _message(row: tuple[int, ...], ranks: int, time: _Time) -> CallRecord:
    number, begin, end, size, tag, peer, is_waited_for, kind, outcome = row[:9]
    dtype = _text(row[9])  # type: ignore[arg-type]  # the only column that is no number
    whom = "any rank" if _rank(peer, ranks) is None else f"rank {peer}"
    way = "receive from" if kind == KINDS.index("receive") else "send to"
    return CallRecord(
        number,
        _name(KINDS, kind),
        f"{way} {whom}, tag {tag} ({dtype}, {size} bytes)",
        size,
        time.moment(begin),
        None if outcome == GOES_ON else time.moment(end),
        "running" if outcome == GOES_ON else _name(FAILURES, outcome),
        _rank(peer, ranks),
        is_waited_for == 1,
    )


class _Time:
    """A rank's ticks in nanoseconds, by what both clocks showed when it began and what they show now."""

    def __init__(self, counts: bool, ticks: int, ns: int, clock: Clock) -> None:
        self._now_ticks, self._now_ns = clock[1], clock[2]
        self._ticks, self._ns = self._now_ticks - ticks, self._now_ns - ns
        if not counts or not clock[0] or self._ticks <= 0 or self._ns <= 0:
            self._now_ticks, self._ticks, self._ns = self._now_ns, 1, 1

    def span(self, ticks: int) -> int:
        return ticks * self._ns // self._ticks

    def moment(self, ticks: int) -> int:
        """Between 0 and now, whatever was written there."""
        return max(0, self._now_ns - self.span(max(0, self._now_ticks - ticks)))


def _name(names: tuple[str, ...], index: int) -> str:
    return names[index] if index < len(names) else f"{index}?"


def _rank(value: int, ranks: int) -> int | None:
    return value if 0 <= value < ranks else None


def _text(raw: bytes) -> str:
    """Text as far as the first zero, with nothing in it that a terminal would obey."""
    text = raw.partition(b"\0")[0].decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _check_sizes() -> None:
    """The extension and this file describe the same memory."""
    known = (_LINE.size, _CALLS.size, _MESSAGES.size, _RECORD.size, _FLIGHT_BYTES)
    if known != (64, 64, 64, _core.RECORD_BYTES, _core.FLIGHT_BYTES):
        raise ImportError(f"the extension farandole._core is of another version than this package: {known}")


_check_sizes()
