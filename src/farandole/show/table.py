"""The table that one draws by hand: what every rank holds, after every round.

    rank   a (0)      b (1)
       0   a0+a1*    >b0+b1*

A chunk is a letter, and a rank's contribution to it is the letter with the number of the rank: ``a0+a1`` are
those of ranks 0 and 1, reduced; ``a0..a3`` those of ranks 0 to 3; ``a:9/16`` nine of 16, where a list would be
too long. ``.`` is a chunk that the rank does not hold, ``>`` has just arrived, ``*`` is what must be there at
the end; a rank with a ``*`` has all that it must have then.

Worlds that are too large for a page are shown in part, and the text says what is left out.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from farandole.captions import arrivals, captions
from farandole.collectives import collective
from farandole.schedule import Round, Schedule
from farandole.units import counted
from farandole.verify import contributions_after, members, states
from farandole.verify.schedule import Bits

if TYPE_CHECKING:
    from rich.console import Group

_LONGEST_CELL = 14


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a schedule is shown: its first ranks, chunks and rounds."""

    ranks: int = 16
    chunks: int = 12
    rounds: int = 40

    @classmethod
    def none(cls, schedule: Schedule) -> Limits:
        """Limits within which all of the schedule is."""
        return cls(schedule.ranks, schedule.chunks, len(schedule.rounds))


@dataclass(frozen=True, slots=True)
class Cell:
    """One chunk at one rank: what it holds in words, whether that has just arrived and whether it is complete."""

    text: str
    arrived: bool
    complete: bool

    def __str__(self) -> str:
        return f"{'>' if self.arrived else ' '}{self.text}{'*' if self.complete else ''}"

    @property
    def style(self) -> str:
        """How rich shows it."""
        if self.arrived:
            return f"bold {'green' if self.complete else 'yellow'}"
        return "green" if self.complete else "dim" if self.text == "." else ""


@dataclass(frozen=True, slots=True)
class Panel:
    """What the ranks hold after one round: a row of cells per rank, and which ranks are done."""

    caption: str
    rows: tuple[tuple[Cell, ...], ...]
    done: tuple[bool, ...]

    def lines(self) -> list[list[str]]:
        """The rows as text, each with its rank in front."""
        return [
            [f"{rank}{'*' if done else ''}", *map(str, row)]
            for rank, (row, done) in enumerate(zip(self.rows, self.done, strict=True))
        ]


def show_table(schedule: Schedule, limits: Limits | None = None) -> str:
    """The start and every round as plain text.

    >>> from farandole.algorithms import build
    >>> print(show_table(build("all_reduce", "naive", 2)))
    naive: all_reduce on 2 ranks, one chunk, one round
    a0 is what rank 0 has for chunk a (0); > has just arrived, * is what must be there at the end
    <BLANKLINE>
    Start
    rank   a (0)
       0   a0
       1   a1
    <BLANKLINE>
    Round 1 of 1: the two ranks exchange one chunk; every rank is done.
    rank   a (0)
      0*  >a0+a1*
      1*  >a0+a1*
    """
    shown = limits or Limits()
    parts = [f"{title(schedule)}\n{legend(schedule)}"]
    parts.extend(
        "\n".join([panel.caption, *_aligned([headings(schedule, shown), *panel.lines()])])
        for panel in panels(schedule, shown)
    )
    parts.extend(filter(None, [left_out(schedule, shown)]))
    return "\n\n".join(parts)


def rich_table(schedule: Schedule, limits: Limits | None = None, width: int | None = None) -> Group:
    """The same as a renderable for a terminal: what has arrived is yellow, what is complete is green.

    With ``width``, as many chunks are shown as fit into that many columns, and one at least.
    """
    from rich import box  # noqa: PLC0415 - rich is slow to load, and text needs none of it
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = limits or Limits()
    drawn = list(panels(schedule, shown))
    if width is not None:
        shown = replace(shown, chunks=_fitting(drawn, width))
    parts: list[Table | Text] = [Text(title(schedule), style="bold"), Text(f"{legend(schedule)}\n", style="dim")]
    for panel in drawn:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in headings(schedule, shown):
            table.add_column(heading, no_wrap=True, justify="left" if table.columns else "right")
        for (label, *_), row in zip(panel.lines(), panel.rows, strict=True):
            table.add_row(label, *(Text(str(cell), style=cell.style) for cell in row[: shown.chunks]))
        parts.extend([Text(panel.caption), table])
    parts.extend(Text(text) for text in [left_out(schedule, shown)] if text)
    return Group(*parts)


def _fitting(drawn: list[Panel], width: int) -> int:
    """How many columns of cells fit into the width, beside that of the ranks."""
    columns = zip(*(row for panel in drawn for row in panel.rows), strict=True)
    ends = accumulate((max(7, *(len(str(cell)) for cell in column)) + 2 for column in columns), initial=5)
    return max(1, sum(end <= width for end in ends) - 1)


def _aligned(lines: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        f"{line[0]:>{widths[0]}}  "
        + "  ".join(f"{text:<{width}}" for text, width in zip(line[1:], widths[1:], strict=True)).rstrip()
        for line in lines
    ]


def title(schedule: Schedule) -> str:
    """What the schedule is, in one line."""
    parts = [counted(schedule.chunks, "chunk"), counted(len(schedule.rounds), "round")]
    root = f" with root {schedule.root}" if collective(schedule.collective).rooted else ""
    ranks = counted(schedule.ranks, "rank")
    return f"{schedule.name or 'a schedule'}: {schedule.collective} on {ranks}{root}, {', '.join(parts)}"


def legend(schedule: Schedule) -> str:
    """How to read a cell, in one line."""
    whose = "what rank 0 has for" if collective(schedule.collective).reduces else "rank 0's"
    return f"a0 is {whose} chunk a (0); > has just arrived, * is what must be there at the end"


def left_out(schedule: Schedule, limits: Limits) -> str:
    """What the limits hide, in a sentence; empty if nothing."""
    whole = {"rank": schedule.ranks, "chunk": schedule.chunks, "round": len(schedule.rounds)}
    shown = {"rank": limits.ranks, "chunk": limits.chunks, "round": limits.rounds}
    hidden = [counted(whole[noun] - shown[noun], f"more {noun}") for noun in whole if whole[noun] > shown[noun]]
    return f"Left out: {', '.join(hidden)}." if hidden else ""


def letter(chunk: int) -> str:
    """The letters of a chunk: a to z, then aa, ab, ...

    >>> [letter(chunk) for chunk in (0, 25, 26, 702)]
    ['a', 'z', 'aa', 'aaa']
    """
    letters = ""
    chunk += 1
    while chunk:
        chunk, digit = divmod(chunk - 1, 26)
        letters = string.ascii_lowercase[digit] + letters
    return letters


def headings(schedule: Schedule, limits: Limits) -> list[str]:
    """The heading of each column that is shown: for a chunk, its letter and its number."""
    return ["rank", *(f" {letter(chunk)} ({chunk})" for chunk in range(min(schedule.chunks, limits.chunks)))]


def panels(schedule: Schedule, limits: Limits) -> Iterator[Panel]:
    """The start, and each round that is shown."""
    required = collective(schedule.collective).after(schedule.ranks, schedule.chunks, schedule.root)
    expected = contributions_after(schedule)
    sentences = ["Start", *captions(schedule)]
    rounds: list[Round | None] = [None, *schedule.rounds]
    for sentence, round_, held in zip(sentences[: limits.rounds + 1], rounds, states(schedule), strict=False):
        fresh = np.zeros(required.shape, np.bool_)
        if round_ is not None:
            fresh[arrivals(schedule, round_)] = True
        complete = required & (held == expected).all(axis=2)
        ranks, chunks = range(min(schedule.ranks, limits.ranks)), range(min(schedule.chunks, limits.chunks))
        rows = tuple(
            tuple(
                Cell(_in_words(held[rank, chunk], chunk, schedule.ranks), *map(bool, flags))
                for chunk, flags in zip(chunks, zip(fresh[rank], complete[rank], strict=True), strict=False)
            )
            for rank in ranks
        )
        done = (complete == required).all(axis=1) & required.any(axis=1)
        yield Panel(sentence, rows, tuple(done[: len(ranks)].tolist()))


def _in_words(bits: Bits, chunk: int, ranks: int) -> str:
    """Who has contributed to a chunk: ``a0+a1``, ``a0..a3+a6``, ``a:9/16``; ``.`` for nobody."""
    name, runs = letter(chunk), _runs(bits.tobytes())
    text = "+".join(
        f"{name}{first}..{name}{last}" if last > first + 1 else "+".join(f"{name}{r}" for r in range(first, last + 1))
        for first, last in runs
    )
    if len(text) > _LONGEST_CELL:
        return f"{name}:{sum(last - first + 1 for first, last in runs)}/{ranks}"
    return text or "."


@lru_cache(maxsize=1024)
def _runs(bits: bytes) -> tuple[tuple[int, int], ...]:
    """The runs of consecutive ranks in a bit set, each with its first and its last."""
    ranks = members(np.frombuffer(bits, np.uint64))
    present = set(ranks)
    firsts = (rank for rank in ranks if rank - 1 not in present)
    lasts = (rank for rank in ranks if rank + 1 not in present)
    return tuple(zip(firsts, lasts, strict=True))
