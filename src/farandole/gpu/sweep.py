"""Measured times over sizes, from what measures them: our own runs, nccl-tests, or a table.

A sweep is a list of points. Sizes are those of the whole buffer in bytes (what an all_gather ends with, what a
reduce_scatter starts with), times are seconds. Four kinds of file are read:

- ``farandole run --json`` and ``farandole bench --json``: results that were found wrong are left out, and said;
- the output of nccl-tests or rccl-tests: see ``nccl_tests.py``;
- a ``.csv`` table with a heading: see ``table.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farandole.collectives import collective as find_collective
from farandole.errors import FormatError

OURS = ("farandole.run", "farandole.bench")
LIMIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Point:
    """One measured time. ``series`` says what was measured; ``algorithm`` and ``protocol`` where they are known."""

    series: str
    collective: str
    ranks: int
    size_bytes: int
    time_s: float
    algorithm: str = ""
    protocol: str = ""
    root: int = 0
    itemsize: int = 4

    def group(self) -> tuple[str, str, int]:
        """What points must have in common to be fitted together."""
        return self.series, self.collective, self.ranks


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a file holds. ``kind`` is the kind of file, ``facts`` what it says about itself, ``notes`` what is odd."""

    kind: str
    points: tuple[Point, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def series(self) -> dict[tuple[str, str, int], list[Point]]:
        """The points by (series, collective, ranks), in the order of the file."""
        groups: dict[tuple[str, str, int], list[Point]] = {}
        for point in self.points:
            groups.setdefault(point.group(), []).append(point)
        return groups


def read_sweep(path: Path, collective: str = "", ranks: int = 0) -> Sweep:
    """Read a file of measured times; ``collective`` and ``ranks`` are for a log that does not say them.

    Raises FormatError, with the line, for a file that is none of those it should be.
    """
    from farandole.gpu import nccl_tests, table  # noqa: PLC0415 - both make points

    try:
        with path.open("rb") as file:
            data = file.read(LIMIT_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}", path=str(path)) from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is not text: {error}", path=str(path)) from error
    if len(data) > LIMIT_BYTES:
        raise FormatError(f"{path}: a file of measured times may have {LIMIT_BYTES:,} bytes at most", path=str(path))
    if collective:
        find_collective(collective)
    try:
        if path.suffix == ".csv":
            found = table.parse(text)
        elif text.lstrip().startswith("{"):
            found = parse_ours(text)
        else:
            found = nccl_tests.parse(text, collective, ranks)
    except FormatError as error:
        raise FormatError(f"{path}: {error}", path=str(path), **error.facts) from error
    if not found.points:
        raise FormatError(f"{path}: no measured time in it; {nccl_tests.FORM}", path=str(path))
    return found


def parse_ours(text: str) -> Sweep:
    """The JSON of ``farandole run`` or ``farandole bench``."""
    import msgspec  # noqa: PLC0415 - for this kind of file only

    try:
        whole = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from error
    kind = whole.get("format")
    if kind not in OURS or whole.get("version") != 1 or not isinstance(whole.get("results"), list):
        raise FormatError(
            f"a JSON file of measured times is made by farandole run --json or farandole bench --json, and this one"
            f" has the format {kind!r}, version {whole.get('version')!r}",
            expected=OURS,
            got=kind,
        )
    points, notes = [], []
    for number, row in enumerate(whole["results"]):
        try:
            point = _ours(row, kind)
            is_right = bool(row.get("checked", True))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FormatError(f"result {number} lacks or garbles {error}", result=number) from error
        if is_right and point.size_bytes > 0 and point.time_s > 0:
            points.append(point)
        else:
            why = "has no bytes" if is_right else "had a wrong result"
            notes.append(f"result {number} ({point.series}, {point.size_bytes} B) {why} and is left out")
    return Sweep(kind, tuple(points), {}, tuple(notes))


def _ours(row: Mapping[str, Any], kind: str) -> Point:
    from farandole.ops import find_dtype  # noqa: PLC0415 - for this kind of file only

    algorithm = str(row["algorithm"]) if kind == "farandole.run" else ""
    return Point(
        series=algorithm or str(row["library"]),
        collective=find_collective(str(row["collective"])).name,
        ranks=int(row["ranks"]),
        size_bytes=int(row["size_bytes"]),
        time_s=float(row["median_s"]),
        algorithm=algorithm,
        root=int(row.get("root", 0)),
        itemsize=find_dtype(str(row["dtype"])).itemsize if "dtype" in row else 4,
    )


def in_words(group: Sequence[Any]) -> str:
    """``(series, collective, ranks)`` for people."""
    series, collective, ranks = group
    return f"{collective} on {ranks} ranks, {series}" if series else f"{collective} on {ranks} ranks"
