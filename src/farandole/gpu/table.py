"""A table of measured times as CSV, and what it says about itself.

::

    # source: where the figures were published
    # collective: all_reduce
    # ranks: 64
    algorithm,protocol,size_bytes,time_us
    tree,LL,32,76
    ring,Simple,32,198

Lines that begin with ``#`` are facts, ``name: text``; ``collective`` and ``ranks`` are needed, the others are free.
The columns ``size_bytes`` and ``time_us`` are needed; ``series``, ``algorithm`` and ``protocol`` may be there.
"""

from __future__ import annotations

import csv
import io

from farandole.collectives import collective as find_collective
from farandole.errors import FormatError
from farandole.gpu.sweep import Point, Sweep

COLUMNS = ("series", "algorithm", "protocol", "size_bytes", "time_us")


def parse(text: str) -> Sweep:
    r"""The points of a table; FormatError says in which line something is wrong.

    >>> table = "# collective: all_reduce\n# ranks: 8\nsize_bytes,time_us\n1024,12\n"
    >>> parse(table).points[0].time_s
    1.2e-05
    """
    facts: dict[str, str] = {}
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            name, _, value = line[1:].partition(":")
            facts[name.strip()] = value.strip()
        elif line.strip():
            rows.append((number, next(csv.reader(io.StringIO(line), strict=True))))
    if not rows:
        raise FormatError("a table has a heading with size_bytes and time_us, and rows")
    heading = rows[0][1]
    unknown = [name for name in heading if name not in COLUMNS]
    if unknown or not {"size_bytes", "time_us"} <= set(heading):
        raise FormatError(
            f"line {rows[0][0]}: the columns are {', '.join(COLUMNS)}, of which size_bytes and time_us are needed, not"
            f" {', '.join(heading)}",
            line=rows[0][0],
            got=heading,
        )
    if "collective" not in facts or not facts.get("ranks", "").isdecimal() or int(facts["ranks"]) < 2:
        raise FormatError("a table says '# collective: NAME' and '# ranks: N' above its heading, N at least 2")
    what = find_collective(facts["collective"]).name
    points = [_point(number, dict(zip(heading, row, strict=False)), row, heading, facts) for number, row in rows[1:]]
    return Sweep("table", tuple(points), {**facts, "collective": what})


def _point(number: int, cells: dict[str, str], row: list[str], heading: list[str], facts: dict[str, str]) -> Point:
    if len(row) != len(heading):
        raise FormatError(f"line {number} has {len(row)} cells, and the heading {len(heading)}", line=number)
    try:
        size, time_s = int(cells["size_bytes"]), float(cells["time_us"]) * 1e-6
    except ValueError as error:
        raise FormatError(f"line {number}: {error}", line=number) from error
    if size < 1 or not time_s > 0:
        raise FormatError(f"line {number}: sizes and times are greater than 0", line=number)
    algorithm, protocol = cells.get("algorithm", ""), cells.get("protocol", "")
    series = cells.get("series") or " ".join(part for part in (algorithm, protocol) if part)
    return Point(series, facts["collective"], int(facts["ranks"]), size, time_s, algorithm, protocol)
