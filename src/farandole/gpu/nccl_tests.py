"""Reading what nccl-tests and rccl-tests print: ``all_reduce_perf`` and its siblings.

What is read of a log:

- which test it was, from its name anywhere above the rows (``all_reduce_perf``), and how many ranks, from the lines
  ``#  Rank  3 ...``; an old log that lacks them needs to be told;
- the heading ``# size count type ... time algbw busbw ...``, which differs between versions and options;
- the rows. Out of place and in place are two series. The prefixes of mpirun and srun are taken off.

What is checked: as many columns as the heading names, numbers where numbers belong, and algbw equal to size over
time. A row that fails is an error with its line, since a garbled row (two processes writing at once) would otherwise
become a wrong prediction. Rows without bytes or time are left out, and so are those with wrong results; both are said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from farandole.errors import FormatError
from farandole.gpu.sweep import Point, Sweep

FORM = (
    "what is read are the rows of nccl-tests ('1048576 262144 float sum -1 71.85 14.59 25.54 0 ...'), the JSON of"
    " farandole run or bench, or a .csv table"
)
TESTS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast", "reduce": "reduce", "alltoall": "all_to_all", "gather": "gather", "scatter": "scatter",
}  # fmt: skip
PLACES = ("out of place", "in place")

_PREFIX = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>:|\d+:\s(?=\s*[\d#]))")
_TEST = re.compile(r"\b([a-z_]+?)_perf(?:_mpi)?\b")
_RANK = re.compile(r"^#\s*Rank\s+(\d+)\s")
_TYPE = re.compile(r"^(?:u?int(?:8|32|64)|half|float|double|bfloat16|fp8_?\w+|f8\w+)$")
_MISSING = ("N/A", "-")


def parse(text: str, collective: str = "", ranks: int = 0) -> Sweep:
    """The points of a log. ``collective`` and ``ranks`` are taken where the log does not say; FormatError has a line.

    >>> log = "1024 256 float sum 20.0 0.05 0.10 1e-07 19.0 0.05 0.10 1e-07"
    >>> [(point.series, point.size_bytes) for point in parse(log, "all_reduce", 8).points]
    [('out of place', 1024), ('in place', 1024)]
    """
    points: list[Point] = []
    notes: list[str] = []
    test, seen_ranks = collective, 0
    columns: list[str] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _PREFIX.sub("", raw).strip()
        rank = _RANK.match(line)
        if rank:
            seen_ranks = 1 if rank[1] == "0" else max(seen_ranks, int(rank[1]) + 1)
        elif line.startswith("#") and {"size", "time", "algbw"} <= set(line.split()):
            columns = line[1:].split()
        elif _is_row(line):
            size, times = _row(line.split(), columns, number, notes)
            if not test:
                raise FormatError(
                    f"line {number}: the log does not say which test it is; give --collective all_reduce", line=number
                )
            if not (seen_ranks or ranks):
                raise FormatError(f"line {number}: the log has no lines '#  Rank 0 ...'; give --ranks N", line=number)
            points += [Point(PLACES[place], test, seen_ranks or ranks, size, time) for place, time in times if size > 0]
        else:
            found = _TEST.search(line)
            if found and found[1] in TESTS:
                test = TESTS[found[1]]
            elif found and found[1] in ("sendrecv", "hypercube"):
                raise FormatError(f"line {number}: {found[0]} is no collective of this model", line=number)
    return Sweep("nccl-tests", tuple(points), {}, tuple(notes))


def _is_row(line: str) -> bool:
    tokens = line.split()
    return len(tokens) >= 3 and tokens[0].isdecimal() and tokens[1].isdecimal() and bool(_TYPE.match(tokens[2]))


def _row(
    tokens: Sequence[str], columns: Sequence[str], number: int, notes: list[str]
) -> tuple[int, list[tuple[int, float]]]:
    """The size, and the times in seconds by place."""
    names = list(columns) or _usual(tokens, number)
    if len(names) != len(tokens):
        raise FormatError(
            f"line {number} has {len(tokens)} columns, and the heading names {len(names)}: {' '.join(names)}",
            line=number,
            expected=len(names),
            got=len(tokens),
        )
    size = int(tokens[names.index("size")])
    times: list[tuple[int, float]] = []
    starts = [i for i, name in enumerate(names) if name == "time"]
    for place, start in enumerate(starts[:2]):
        end = starts[place + 1] if place + 1 < len(starts) else len(names)
        cells = dict(zip(names[start:end], tokens[start:end], strict=True))
        if cells["time"] in _MISSING:
            continue
        time_us = _number(cells["time"], "time", number)
        wrong = cells.get("#wrong", "0")
        if wrong not in ("0", *_MISSING) and _number(wrong, "#wrong", number) > 0:
            notes.append(f"line {number}: {wrong} wrong elements {PLACES[place]}; left out")
        elif size == 0 or time_us == 0:
            notes.append(f"line {number}: no bytes or no time {PLACES[place]}; left out")
        else:
            _check_bandwidth(size, time_us, cells.get("algbw", "N/A"), number)
            times.append((place, time_us * 1e-6))
    return size, times


def _usual(tokens: Sequence[str], number: int) -> list[str]:
    """The columns of a log without heading: with and without redop and root, as versions differ."""
    names = ["size", "count", "type"]
    rest = list(tokens[3:])
    if rest and not _is_number(rest[0]):
        names.append("redop")
        rest.pop(0)
    if len(rest) % 4 == 1:
        names.append("root")
        rest.pop(0)
    if len(rest) not in (4, 8):
        raise FormatError(
            f"line {number} has {len(tokens)} columns, which no version of nccl-tests prints without a heading",
            line=number,
            got=len(tokens),
        )
    return names + ["time", "algbw", "busbw", "#wrong" if _looks_whole(rest) else "error"] * (len(rest) // 4)


def _looks_whole(rest: Sequence[str]) -> bool:
    return all(cell.isdecimal() or cell in _MISSING for cell in rest[3::4])


def _check_bandwidth(size: int, time_us: float, algbw: str, number: int) -> None:
    """Raise unless the row's algbw is its size over its time, as far as its digits go."""
    if algbw in _MISSING:
        return
    said, is_ = _number(algbw, "algbw", number), size / time_us / 1e3
    if abs(said - is_) > 0.0051 + 0.02 * is_:
        raise FormatError(
            f"line {number}: {size} B in {time_us} us is {is_:.2f} GB/s, and the row says {said}; it is garbled, or its"
            " columns are not those of the heading",
            line=number,
            expected=is_,
            got=said,
        )


def _number(text: str, what: str, number: int) -> float:
    if not _is_number(text):
        raise FormatError(f"line {number}: {what} is a number, not {text!r}", line=number, got=text)
    return float(text)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", text) is not None
