"""Profiles: which algorithm was measured to be the fastest on a machine, as a file. ``farandole.profile``, version 1.

    {"format": "farandole.profile", "version": 1, "made_by": "farandole 0.1.0",
     "machine": {"cpu": "AMD EPYC", "cores": 2, "kernel": "Linux 6.1"}, "dtype": "float32", "op": "sum",
     "others_share": 0.01,
     "tables": [{"collective": "all_reduce", "ranks": 4, "points": [
         {"size_bytes": 4096, "algorithm": "naive", "default": "naive", "measured": [
             {"algorithm": "naive", "median_s": 3.2e-05, "low_s": 2.9e-05, "high_s": 4.1e-05, "rounds": 15}, ...]},
         ...]}]}

``algorithm`` is what is to be used, ``default`` what it had to beat. Sizes are bytes of the largest buffer of a rank.

A file is read strictly: at most LIMIT_BYTES, every field of its type and range, sizes ascending, each table once, only
algorithms that there are. Fields that are not known are ignored, a version that is not known is refused. It is
written to a file beside it first, which then takes its name, so that nobody ever reads half of one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from farandole import __version__
from farandole.algorithms.registry import find, parse, typed
from farandole.collectives import COLLECTIVES
from farandole.errors import FormatError, UnknownNameError, UsageError
from farandole.run.machine import Machine
from farandole.run.wire import MOST_RANKS

FORMAT = "farandole.profile"
VERSION = 1
LIMIT_BYTES = 4 << 20
VARIABLE, OFF = "FARANDOLE_PROFILE", "off"

_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Time = Annotated[float, Meta(gt=0, lt=1e6)]
_Size = Annotated[int, Meta(ge=0, le=2**62)]
_Count = Annotated[int, Meta(ge=1, lt=2**31)]
_Decoded = TypeVar("_Decoded")


class Measured(msgspec.Struct, frozen=True):
    """One algorithm's times in seconds a call: the median and the quartiles over so many rounds."""

    algorithm: _Name
    median_s: _Time
    low_s: _Time
    high_s: _Time
    rounds: _Count


class Point(msgspec.Struct, frozen=True):
    """What was measured for one size, the fastest first."""

    size_bytes: _Size
    algorithm: _Name
    default: _Name
    measured: Annotated[tuple[Measured, ...], Meta(max_length=1000)]


class Table(msgspec.Struct, frozen=True):
    """One collective on so many ranks: its points, by size."""

    collective: _Name
    ranks: Annotated[int, Meta(ge=2, le=MOST_RANKS)]
    points: Annotated[tuple[Point, ...], Meta(min_length=1, max_length=1000)]


class Profile(msgspec.Struct, frozen=True):
    """All that was measured on one machine; ``others_share`` is how much of it others used during the last time."""

    machine: Machine
    tables: Annotated[tuple[Table, ...], Meta(max_length=1000)]
    dtype: _Name = "float32"
    op: _Name = "sum"
    others_share: Annotated[float, Meta(ge=0, le=1)] = 0.0

    def table(self, collective: str, ranks: int) -> Table | None:
        """What was measured for a collective on exactly so many ranks."""
        return next((t for t in self.tables if (t.collective, t.ranks) == (collective, ranks)), None)

    def updated(self, newer: Profile) -> Profile:
        """This profile with the tables of a newer one, of the same machine, in place of its own."""
        new = {(t.collective, t.ranks): t for t in newer.tables}
        kept = {(t.collective, t.ranks): t for t in self.tables}
        return msgspec.structs.replace(newer, tables=_sorted((kept | new).values()))


class _Kind(msgspec.Struct):
    format: str
    version: int


def read_profile(source: str | os.PathLike[str] | bytes) -> Profile:
    """Read a profile from a file, or from the bytes of one.

    Raises FormatError where it is malformed, too large, or of another format or version, and OSError where the file
    cannot be opened.
    """
    path = None if isinstance(source, bytes) else Path(source)
    try:
        return _read(_contents(path) if path is not None else bytes(source))  # type: ignore[arg-type]
    except FormatError as error:
        if path is None:
            raise
        remedy = f"remove it and measure again (farandole tune), or set {VARIABLE}={OFF}"
        raise FormatError(f"{path}: {error}; {remedy}", **error.facts, path=str(path)) from None


def write_profile(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write a profile; its folder is made if need be. Whoever reads meanwhile reads the old one or the new one."""
    target = Path(os.path.realpath(path))
    head = {"format": FORMAT, "version": VERSION, "made_by": f"farandole {__version__}"}
    text = msgspec.json.format(msgspec.json.encode({**head, **msgspec.to_builtins(profile)}), indent=1)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            file.write(text + b"\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        raise


def _read(data: bytes) -> Profile:
    if len(data) > LIMIT_BYTES:
        raise _malformed("", f"a profile may have {LIMIT_BYTES:,} bytes at most")
    kind = _decoded(data, _Kind)
    if kind.format != FORMAT:
        raise _malformed("format", f"expected {FORMAT}, got {kind.format}")
    if kind.version != VERSION:
        raise _malformed("version", f"this release reads version {VERSION}, and this file has {kind.version}")
    profile = _decoded(data, Profile)
    seen = set()
    for i, table in enumerate(profile.tables):
        where = f"tables[{i}]"
        if (table.collective, table.ranks) in seen:
            raise _malformed(where, f"{table.collective} on {table.ranks} ranks is there twice")
        seen.add((table.collective, table.ranks))
        if table.collective not in COLLECTIVES:
            raise _malformed(f"{where}.collective", str(UnknownNameError("collective", table.collective, COLLECTIVES)))
        for j, point in enumerate(table.points):
            if j and point.size_bytes <= table.points[j - 1].size_bytes:
                raise _malformed(f"{where}.points[{j}].size_bytes", "sizes must be ascending")
            for name in ("algorithm", "default"):
                _check_algorithm(table.collective, getattr(point, name), f"{where}.points[{j}].{name}")
    return profile


def _check_algorithm(collective: str, text: str, where: str) -> None:
    try:
        name, options = parse(text)
        typed(find(collective, name), options)
    except UsageError as error:
        raise _malformed(where, str(error)) from None


def _contents(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LIMIT_BYTES + 1)


def _decoded(data: bytes, kind: type[_Decoded]) -> _Decoded:
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise _malformed("", "it is nested too deeply") from None
    except msgspec.DecodeError as error:
        fault, _, place = str(error).partition(" - at `$")
        rule = fault.replace("`", "")
        raise _malformed(place.strip("`").removeprefix("."), rule[0].lower() + rule[1:]) from None


def _malformed(where: str, rule: str) -> FormatError:
    return FormatError(f"{where}: {rule}" if where else rule, where=where, rule=rule)


def _sorted(tables: Iterable[Table]) -> tuple[Table, ...]:
    return tuple(sorted(tables, key=lambda t: (t.collective, t.ranks)))
