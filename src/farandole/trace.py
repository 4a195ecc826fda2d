"""Traces: what happened when, per rank and transfer, whether simulated or measured.

The rules:

- Times are whole nanoseconds from the start of the call; ``source`` says whether they are simulated or measured.
  A measured time is off by no more than ``uncertainty_ns``.
- ``send``: a rank hands a transfer to the network, from the moment it posts it until it may go on.
- ``receive``: a transfer is under way to a rank, from the moment it was posted until its last byte is there.
- ``reduce``: a rank adds what it received to what it holds. ``wait``: a rank waits for a peer; where a trace has
  no such events, the gaps between the others are waits.
- A rank that shares memory with its peers does all by itself, one thing after the other: it copies (``copy``) what
  it has to where the others can read it, or into the result, tells them so (``publish``), and takes what it needs
  out of their memory (``receive``, or ``reduce`` where it is added at once). Transfers that are added in one pass
  are events of the same times.
- ``round``, ``peer`` and ``chunk`` are -1 where there is none.
- Events are in order of (start, rank, end). Columns rather than objects, so that millions of them fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from farandole.errors import FormatError, UsageError
from farandole.notebook import shown_by

FORMAT = "farandole-trace"
VERSION = 1
LIMIT_BYTES = 256 << 20
KINDS = ("send", "receive", "reduce", "wait", "copy", "publish")
SOURCES = ("simulated", "measured")
COLUMNS = ("rank", "kind", "round", "slice", "peer", "chunk", "count", "size_bytes", "start_ns", "end_ns")


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that one rank did, or that was done to it."""

    rank: int
    kind: str
    round: int
    slice: int
    peer: int
    chunk: int
    count: int
    size_bytes: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """All events of one call of a collective; ``columns`` has an int64 array for each name in ``COLUMNS``.

    ``kind`` in the columns is the place in ``KINDS``.

    >>> trace = make("ring", "all_reduce", 2, 8, "simulated", rank=[0], kind=[0], round=[0], slice=[0], peer=[1],
    ...              chunk=[0], count=[1], size_bytes=[4], start_ns=[0], end_ns=[1000])
    >>> next(trace.events()).kind, trace.time_ns
    ('send', 1000)
    """

    name: str
    collective: str
    ranks: int
    size_bytes: int
    source: str
    columns: Mapping[str, NDArray[np.int64]]
    uncertainty_ns: int = 0
    root: int = 0

    _repr_html_ = shown_by("trace_html")

    def __len__(self) -> int:
        return len(self.columns["rank"])

    @property
    def time_ns(self) -> int:
        """When the last event ended."""
        return int(self.columns["end_ns"].max(initial=0))

    def events(self) -> Iterator[Event]:
        """The events as values, in order."""
        rows = zip(*(self.columns[name].tolist() for name in COLUMNS), strict=True)
        for rank, kind, *rest in rows:
            yield Event(rank, KINDS[kind], *rest)

    def of(self, rank: int) -> Iterator[Event]:
        """The events of one rank, in order."""
        return (event for event in self.events() if event.rank == rank)

    def to_json(self) -> bytes:
        """The trace as a JSON document: ``load`` reads it."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "made_by": "farandole",
            "name": self.name,
            "collective": self.collective,
            "ranks": self.ranks,
            "size_bytes": self.size_bytes,
            "source": self.source,
            "uncertainty_ns": self.uncertainty_ns,
            "root": self.root,
            "kinds": KINDS,
            "columns": {name: self.columns[name].tolist() for name in COLUMNS},
        }
        return msgspec.json.encode(document)


def make(
    name: str,
    collective: str,
    ranks: int,
    size_bytes: int,
    source: str,
    /,
    *,
    uncertainty_ns: int = 0,
    root: int = 0,
    **columns: ArrayLike,
) -> Trace:
    """A trace from columns in any order of events; raises UsageError where they do not fit together."""
    if source not in SOURCES:
        raise UsageError(f"a trace is {' or '.join(SOURCES)}, not {source!r}", got=source)
    if set(columns) != set(COLUMNS):
        wrong = sorted(set(columns) ^ set(COLUMNS))
        raise UsageError(f"a trace has the columns {', '.join(COLUMNS)}; missing or too many: {', '.join(wrong)}")
    table = {column: np.asarray(columns[column], np.int64) for column in COLUMNS}
    if len({len(values) for values in table.values()}) != 1:
        raise UsageError("the columns of a trace are all of one length")
    if (table["end_ns"] < table["start_ns"]).any():
        raise UsageError("an event of a trace ends before it starts")
    for column, least, end in (("rank", 0, ranks), ("peer", -1, ranks), ("kind", 0, len(KINDS))):
        wrong_ones = table[column][(table[column] < least) | (table[column] >= end)]
        if len(wrong_ones):
            raise UsageError(
                f"the {column} of an event is {wrong_ones[0]}, and must be {least} to {end - 1}", got=int(wrong_ones[0])
            )
    order = np.lexsort((table["end_ns"], table["rank"], table["start_ns"]))
    sorted_table = {key: values[order] for key, values in table.items()}
    return Trace(name, collective, ranks, size_bytes, source, sorted_table, uncertainty_ns, root)


_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Kind(msgspec.Struct):
    format: str
    version: int


class _File(msgspec.Struct):
    name: str
    collective: str
    ranks: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    source: str
    kinds: list[str]
    columns: dict[str, list[_Int]]
    uncertainty_ns: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    root: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0


def loads(data: bytes, *, limit_bytes: int = LIMIT_BYTES) -> Trace:
    """Read what ``to_json`` wrote; FormatError says what is wrong. Unknown fields are ignored."""
    if len(data) > limit_bytes:
        raise FormatError(f"a trace may have {limit_bytes:,} bytes at most")
    try:
        kind = msgspec.json.decode(data, type=_Kind)
        if kind.format != FORMAT:
            raise FormatError(f"this is not a trace: its format is {kind.format!r}, not {FORMAT!r}")
        if kind.version != VERSION:
            raise FormatError(f"this trace is of version {kind.version!r}; version {VERSION} can be read")
        file = msgspec.json.decode(data, type=_File)
        columns: dict[str, ArrayLike] = dict(file.columns)
        if "kind" in file.columns:
            columns["kind"] = _kinds(file.kinds, file.columns["kind"])
        return make(
            file.name,
            file.collective,
            file.ranks,
            file.size_bytes,
            file.source,
            uncertainty_ns=file.uncertainty_ns,
            root=file.root,
            **columns,
        )
    except RecursionError:
        raise FormatError("this is not a trace: it is nested too deeply") from None
    except (msgspec.DecodeError, UsageError) as error:
        raise FormatError(f"this is not a trace: {error}") from error


def _kinds(names: list[str], column: list[int]) -> NDArray[np.int64]:
    """The kinds of events, which a file numbers by its own list of names, as places in ``KINDS``."""
    unknown = sorted(set(names) - set(KINDS))
    if unknown:
        raise FormatError(f"the kinds of events are {', '.join(KINDS)}, not {', '.join(unknown)}")
    if column and not 0 <= min(column) <= max(column) < len(names):
        raise FormatError(
            f"this trace names {len(names)} kinds of events, and numbers them {min(column)} to {max(column)}"
        )
    return np.array([KINDS.index(name) for name in names], np.int64)[np.array(column, np.int64)]


def load(path: Path) -> Trace:
    """Read a trace from a file; FormatError says what is wrong."""
    try:
        with path.open("rb") as file:
            data = file.read(LIMIT_BYTES + 1)
        return loads(data, limit_bytes=LIMIT_BYTES)
    except FormatError as error:
        raise FormatError(f"{path}: {error}", path=str(path)) from None
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}", path=str(path)) from error
