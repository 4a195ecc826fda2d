"""Traces for Perfetto and Chrome's tracing: JSON in the Trace Event Format, to be written and read back.

Each rank is a process. What a rank does itself is on a track of its own; what is under way is on tracks by direction
and peer (``to rank 3``, ``from rank 2``), because events of one track must lie inside each other or apart, or the
viewer leaves some out; where several transfers of a track overlap, there are more of it. An arrow leads from the send
of a transfer to its receive. A rank that shares memory with its peers takes what it needs itself, and has one track.

Times are microseconds there, with the nanoseconds behind the point, and the whole event is among its arguments, so that
nothing is lost on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from farandole.errors import FormatError, UsageError
from farandole.trace import COLUMNS, KINDS, Event, Trace, make

_OWN = "what the rank does"
_SIDE_BY_SIDE = ("send", "receive")


def to_perfetto(trace: Trace) -> bytes:
    """The trace as a JSON document; open it at https://ui.perfetto.dev or in chrome://tracing."""
    about = {name: getattr(trace, name) for name in _About.__struct_fields__}
    tracks = _Tracks(trace)
    events: list[dict[str, Any]] = []
    for event in sorted(trace.events(), key=lambda e: (e.start_ns, -e.end_ns)):
        events.extend(_written(event, tracks))
    document = {
        "displayTimeUnit": "ns",
        "otherData": {"made_by": "farandole", **{name: str(value) for name, value in about.items()}},
        "traceEvents": [*tracks.names(), *events],
    }
    return msgspec.json.encode(document)


class _Tracks:
    """The number of each track within its rank, given out as they are needed."""

    def __init__(self, trace: Trace) -> None:
        self.one_thing_at_a_time = trace.source == "measured"
        self._ends: dict[tuple[int, str], list[list[int]]] = {}
        self._numbers: dict[tuple[int, str, int], int] = {}
        self._ranks = trace.ranks

    def of(self, event: Event) -> int:
        """The track of an event; they come in the order of their start, the longer first."""
        name = self._name(event)
        lines = self._ends.setdefault((event.rank, name), [])
        for open_ends in lines:
            while open_ends and open_ends[-1] <= event.start_ns:
                open_ends.pop()
        fits = [not open_ends or event.end_ns <= open_ends[-1] for open_ends in lines]
        place = (*fits, True).index(True)
        if place == len(lines):
            lines.append([])
        lines[place].append(event.end_ns)
        mine = sum(rank == event.rank for rank, _, _ in self._numbers)
        return self._numbers.setdefault((event.rank, name, place), mine)

    def _name(self, event: Event) -> str:
        if self.one_thing_at_a_time or event.kind not in _SIDE_BY_SIDE:
            return _OWN
        return f"{'to' if event.kind == 'send' else 'from'} rank {event.peer}"

    def names(self) -> Iterator[dict[str, Any]]:
        """What the viewer calls the ranks and the tracks."""
        for rank in range(self._ranks):
            yield {"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}}
            yield {"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "args": {"sort_index": rank}}
        for (rank, name, place), track in self._numbers.items():
            shown = f"{name} ({place + 1})" if place else name
            yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": track, "args": {"name": shown}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": rank, "tid": track, "args": {"sort_index": track}}


def _written(event: Event, tracks: _Tracks) -> Iterator[dict[str, Any]]:
    chunks = "" if event.chunk < 0 else f" {event.chunk}" if event.count == 1 else f" {event.chunk}-{_last(event)}"
    place = {"pid": event.rank, "tid": tracks.of(event)}
    args = {name: getattr(event, name) for name in COLUMNS if name not in ("rank", "kind")}
    length = {"ts": event.start_ns / 1000, "dur": (event.end_ns - event.start_ns) / 1000}
    yield {"ph": "X", "name": f"{event.kind}{chunks}", "cat": event.kind, **place, **length, "args": args}
    if event.kind in _SIDE_BY_SIDE and not tracks.one_thing_at_a_time:
        src, dst = (event.rank, event.peer) if event.kind == "send" else (event.peer, event.rank)
        flow = {"name": "transfer", "cat": "transfer", **place}
        flow["id"] = f"{event.round}.{event.slice}.{src}.{dst}.{event.chunk}"
        if event.kind == "send":
            yield {"ph": "s", **flow, "ts": event.start_ns / 1000}
        else:
            yield {"ph": "f", "bp": "e", **flow, "ts": event.end_ns / 1000}


def _last(event: Event) -> int:
    return event.chunk + event.count - 1


_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _About(msgspec.Struct):
    name: str
    collective: str
    ranks: int
    size_bytes: int
    source: str
    uncertainty_ns: int
    root: int


class _Entry(msgspec.Struct):
    ph: str
    pid: int
    tid: int
    name: str
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, Any] = {}


class _Document(msgspec.Struct):
    traceEvents: list[_Entry]  # noqa: N815 - the format's own name
    otherData: dict[str, str]  # noqa: N815


def from_perfetto(data: bytes) -> Trace:
    """Read what ``to_perfetto`` wrote.

    Raises FormatError where it is something else, where its times are not those of the events, or where two events of
    a track overlap without one lying inside the other, which viewers do not show.
    """
    try:
        document = msgspec.json.decode(data, type=_Document)
        about = msgspec.convert(document.otherData, _About, strict=False)
        entries = [entry for entry in document.traceEvents if entry.ph == "X"]
        whole = {name: [entry.args[name] for entry in entries] for name in _IN_ARGUMENTS}
        columns = msgspec.convert(whole, dict[str, list[_Int64]])
        columns["rank"] = [entry.pid for entry in entries]
        columns["kind"] = [KINDS.index(entry.cat) for entry in entries]
        _check_times(entries)
    except RecursionError:
        raise FormatError("this is not a trace that farandole wrote for Perfetto: it is nested too deeply") from None
    except FormatError:
        raise
    except (msgspec.MsgspecError, KeyError, ValueError, OverflowError) as error:
        raise FormatError(f"this is not a trace that farandole wrote for Perfetto: {error}") from error
    fixed = (about.name, about.collective, about.ranks, about.size_bytes, about.source)
    try:
        return make(*fixed, uncertainty_ns=about.uncertainty_ns, root=about.root, **columns)
    except UsageError as error:
        raise FormatError(f"this is not a trace that farandole wrote for Perfetto: {error}") from error


_IN_ARGUMENTS = [name for name in COLUMNS if name not in ("rank", "kind")]


def _check_times(entries: list[_Entry]) -> None:
    open_ends: dict[tuple[int, int], list[int]] = {}
    for entry in sorted(entries, key=lambda e: (e.ts, -e.dur)):
        start, end = round(entry.ts * 1000), round((entry.ts + entry.dur) * 1000)
        if (start, end) != (entry.args["start_ns"], entry.args["end_ns"]):
            raise FormatError(f"{entry.name} of rank {entry.pid} is drawn at {entry.ts} us, which is not its time")
        ends = open_ends.setdefault((entry.pid, entry.tid), [])
        while ends and ends[-1] <= start:
            ends.pop()
        if ends and end > ends[-1]:
            raise FormatError(
                f"{entry.name} of rank {entry.pid} at {entry.ts} us overlaps what is on its track", rank=entry.pid
            )
        ends.append(end)
