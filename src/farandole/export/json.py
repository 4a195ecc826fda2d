"""Schedules as JSON: the format ``farandole.schedule``, version 1.

    {"format": "farandole.schedule", "version": 1, "made_by": "farandole 0.1.0",
     "name": "ring", "collective": "all_reduce", "ranks": 4, "chunks": 4, "root": 0,
     "rounds": [{"round": 0, "phase": "reduce-scatter", "caption": "Reduce-scatter, round 1 of 3: ...",
                 "transfers": [{"src": 0, "dst": 1, "chunk": 3, "count": 1, "reduce": true}, ...]}, ...]}

What a field means is said in :mod:`farandole.schedule`. On reading, ``made_by``, ``name``, ``root``, ``round``,
``phase``, ``caption``, ``count`` and ``reduce`` may be missing, fields that are not known are ignored, and a
version that is not known is refused. A schedule that is wrong can be read, and the verifier says what is wrong
with it; a file that is malformed cannot, and the error says where.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from farandole import __version__
from farandole.captions import captions
from farandole.collectives import collective
from farandole.errors import FormatError, UsageError
from farandole.schedule import Round, Schedule

FORMAT = "farandole.schedule"
VERSION = 1
LIMIT_BYTES = 256 << 20

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class _Transfer(msgspec.Struct, gc=False):
    src: _Int32
    dst: _Int32
    chunk: _Int32
    count: _Int32 = 1
    reduce: bool = False


class _Round(msgspec.Struct):
    transfers: list[_Transfer]
    round: int | None = None
    phase: str = ""


class _Kind(msgspec.Struct):
    format: str
    version: int


class _File(msgspec.Struct):
    collective: str
    ranks: _Positive
    chunks: _Positive
    rounds: list[_Round]
    root: int = 0
    name: str = ""


def schedule_to_json(schedule: Schedule) -> dict[str, Any]:
    """The schedule as plain dicts and lists, ready for any JSON writer.

    >>> from farandole.algorithms import build
    >>> schedule_to_json(build("broadcast", "direct", 2))["rounds"][0]["transfers"]
    [{'src': 0, 'dst': 1, 'chunk': 0, 'count': 1, 'reduce': False}]
    """
    return {**_head_of(schedule), "rounds": list(_rounds_of(schedule))}


def write_schedule(schedule: Schedule, path: str | os.PathLike[str]) -> None:
    """Write the schedule as JSON to ``path``, a line for each round."""
    encode = msgspec.json.encode
    head = b"".join(b" %b: %b,\n" % (encode(name), encode(value)) for name, value in _head_of(schedule).items())
    with Path(path).open("wb") as file:
        file.write(b'{\n%b "rounds": [' % head)
        rounds = (encode(round_) for round_ in _rounds_of(schedule))
        file.writelines(b"%b\n  %b" % (b"," if number else b"", line) for number, line in enumerate(rounds))
        file.write(b"\n ]\n}\n")


def _head_of(schedule: Schedule) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "made_by": f"farandole {__version__}",
        "name": schedule.name,
        "collective": schedule.collective,
        "ranks": schedule.ranks,
        "chunks": schedule.chunks,
        "root": schedule.root,
    }


def _rounds_of(schedule: Schedule) -> Iterator[dict[str, Any]]:
    names = ("src", "dst", "chunk", "count", "reduce")
    for number, (round_, caption) in enumerate(zip(schedule.rounds, captions(schedule), strict=True)):
        columns = (getattr(round_, name).tolist() for name in names)
        transfers = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        yield {"round": number, "phase": round_.phase, "caption": caption, "transfers": transfers}


def read_schedule(source: str | os.PathLike[str] | bytes, *, limit_bytes: int = LIMIT_BYTES) -> Schedule:
    """Read a schedule from a file, or from the bytes of one.

    Raises FormatError where it is malformed, larger than ``limit_bytes``, or of another format or version, and
    OSError where the file cannot be opened.
    """
    data = source if isinstance(source, bytes) else _contents(Path(source), limit_bytes)
    try:
        if len(data) > limit_bytes:
            raise _malformed("", f"a schedule may have {limit_bytes:,} bytes at most")
        kind = _decoded(data, _Kind)
        if kind.format != FORMAT:
            raise _malformed("format", f"expected {FORMAT}, got {kind.format}")
        if kind.version != VERSION:
            raise _malformed("version", f"this release reads version {VERSION}, and this file has {kind.version}")
        return _schedule(_decoded(data, _File))
    except FormatError as error:
        if isinstance(source, bytes):
            raise
        path = os.fspath(source)
        raise FormatError(f"{path}: {error}", **error.facts, path=path) from None


def _contents(path: Path, limit_bytes: int) -> bytes:
    with path.open("rb") as file:
        return file.read(limit_bytes + 1)


def _malformed(where: str, rule: str) -> FormatError:
    return FormatError(f"{where}: {rule}" if where else rule, where=where, rule=rule)


_Decoded = TypeVar("_Decoded")


def _decoded(data: bytes, kind: type[_Decoded]) -> _Decoded:
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise _malformed("", "it is nested too deeply") from None
    except msgspec.DecodeError as error:
        fault, _, place = str(error).partition(" - at `$")
        rule = fault.replace("`", "")
        raise _malformed(place.strip("`").removeprefix("."), rule[0].lower() + rule[1:]) from None


def _schedule(file: _File) -> Schedule:
    try:
        what = collective(file.collective)
    except UsageError as error:
        raise _malformed("collective", str(error)) from None
    try:
        what.check_chunks(file.ranks, file.chunks)
    except UsageError as error:
        raise _malformed("chunks", str(error)) from None
    if not 0 <= file.root < file.ranks:
        raise _malformed("root", f"expected one of the ranks 0 to {file.ranks - 1}, got {file.root}")
    for number, round_ in enumerate(file.rounds):
        if round_.round not in (None, number):
            raise _malformed(f"rounds[{number}].round", f"expected {number}, got {round_.round}")
    rounds = tuple(_round(round_) for round_ in file.rounds)
    return Schedule(file.collective, file.ranks, file.chunks, rounds, file.root, file.name)


def _round(round_: _Round) -> Round:
    table = [(t.src, t.dst, t.chunk, t.count, t.reduce) for t in round_.transfers]
    src, dst, chunk, count, reduce = np.array(table, np.int32).reshape(-1, 5).T
    return Round(src, dst, chunk, count, reduce.astype(np.bool_), round_.phase)
