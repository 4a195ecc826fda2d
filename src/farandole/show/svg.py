"""Schedules as SVG: a strip of small pictures for papers, and one moving picture without any script.

``strip`` has one small picture per round: a row per rank, a column per chunk, in each cell a slot per rank that is
filled where the rank's contribution is in the chunk; arrows are the round's transfers, framed cells what it wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from farandole.captions import captions
from farandole.schedule import Schedule
from farandole.show import scene
from farandole.show.markup import document, number
from farandole.show.motion import animated
from farandole.show.titles import goal, title

__all__ = ["animated", "strip"]

MOST_CELLS = 6_000
WIDEST = 1170
LEFT, TOP, BETWEEN = 36.0, 92.0, 66.0


def strip(schedule: Schedule) -> str:
    """A still picture of every round, side by side, as an SVG document.

    Raises UsageError for a schedule with too many cells to be read on paper.
    """
    rounds = len(schedule.rounds)
    scene.check_size(schedule, schedule.ranks * schedule.chunks * (rounds + 1), MOST_CELLS, "a strip")
    panel = Panel(schedule)
    per_row = max(1, min(rounds + 1, int((WIDEST - LEFT) // panel.step)))
    rows = -(-(rounds + 1) // per_row)
    width = max(LEFT + per_row * panel.step, 20 + 9 * len(title(schedule)))
    height = TOP + rows * (panel.height + BETWEEN) - BETWEEN + 20
    spots = [
        (LEFT + place % per_row * panel.step, TOP + place // per_row * (panel.height + BETWEEN))
        for place in range(rounds + 1)
    ]
    parts = [f"<text x='12' y='26' class='h'>{escape(title(schedule))}</text>\n"]
    parts.extend(_phases(schedule, panel, spots))
    said = [f"The goal: {goal(schedule)}", *captions(schedule)]
    for place, (stage, (x, y)) in enumerate(zip(scene.stages(schedule), spots, strict=True)):
        parts.append(f"<g transform='translate({number(x)} {number(y)})'><title>{escape(said[place])}</title>")
        parts.append(f"<text x='0' y='-24' class='r'>{f'Round {place}' if place else 'Start'}</text>")
        parts.extend(panel.rank_names() if place % per_row == 0 else ())
        parts.extend(panel.chunk_names())
        parts.extend(panel.cells(stage))
        parts.extend(panel.arrows(place - 1) if place else ())
        parts.append("</g>\n")
    return document(width, height, title(schedule), said[0], "".join(parts))


def _phases(schedule: Schedule, panel: Panel, spots: list[scene.Point]) -> Iterator[str]:
    """The name of each phase over its rounds, with a line as long as they are; once more in each row."""
    for phase, first, end in scene.phases(schedule):
        if not phase:
            continue
        rounds = spots[first + 1 : end + 1]
        for y in sorted({y for _, y in rounds}):
            across = [x for x, row in rounds if row == y]
            right = across[-1] + max(panel.width, 78)
            yield f"<path d='M{number(across[0])} {number(y - 39)}H{number(right)}' stroke='{scene.FAINT}'/>"
            yield f"<text x='{number(across[0])}' y='{number(y - 43)}' class='n'>{escape(phase)}</text>\n"


class Panel:
    """The geometry of one small picture, and its parts; the origin is its first cell's corner."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.whole = scene.whole(schedule)
        self.cell_width = max(14.0, min(30.0, 208 / schedule.chunks)) if schedule.chunks > 1 else 64.0
        self.cell_height = 24.0 if schedule.ranks <= 8 else 16.0
        self.gap = 4.0
        self.width = schedule.chunks * (self.cell_width + self.gap) - self.gap
        self.height = schedule.ranks * (self.cell_height + self.gap) - self.gap
        self.step = max(self.width, 78) + 24

    def corner(self, rank: int, chunk: int) -> scene.Point:
        """The upper left corner of a cell."""
        return chunk * (self.cell_width + self.gap), rank * (self.cell_height + self.gap)

    def rank_names(self) -> Iterator[str]:
        """The ranks, to the left of the rows."""
        for rank in range(self.schedule.ranks):
            y = self.corner(rank, 0)[1] + self.cell_height / 2 + 4
            yield f"<text x='-8' y='{number(y)}' class='n' text-anchor='end'>{rank}</text>"

    def chunk_names(self) -> Iterator[str]:
        """The chunks, over the columns, each with a stripe of its colour."""
        every = 1 if self.cell_width >= 16 else 4
        for chunk in range(self.schedule.chunks):
            x = self.corner(0, chunk)[0]
            colour = scene.chunk_colour(chunk)
            yield f"<rect x='{number(x)}' y='-7' width='{number(self.cell_width)}' height='3' fill='{colour}'/>"
            if chunk % every == 0:
                yield f"<text x='{number(x + self.cell_width / 2)}' y='-10' class='c'>{chunk}</text>"

    def cells(self, stage: scene.Stage) -> Iterator[str]:
        """Every cell, and then the frames of those just written."""
        for rank in range(self.schedule.ranks):
            for chunk in range(self.schedule.chunks):
                yield from self.cell(stage, rank, chunk)
        for rank in range(self.schedule.ranks):
            for chunk in range(self.schedule.chunks):
                if stage.fresh[rank, chunk]:
                    x, y = self.corner(rank, chunk)
                    yield f"<rect x='{number(x)}' y='{number(y)}' {self._size} class='f'/>"

    @property
    def _size(self) -> str:
        return f"width='{number(self.cell_width)}' height='{number(self.cell_height)}' rx='2.5'"

    def cell(self, stage: scene.Stage, rank: int, chunk: int) -> Iterator[str]:
        """One cell: not held, held in part, or complete."""
        x, y = self.corner(rank, chunk)
        middle, box = x + self.cell_width / 2, f"<rect x='{number(x)}' y='{number(y)}' {self._size}"
        colour, there = scene.chunk_colour(chunk), stage.holds[rank, chunk]
        count = int(there.sum())
        if count >= self.whole:
            text = f"class='m' style='fill:{scene.text_on(colour)}'>✓</text>"
            yield f"{box} fill='{colour}'/><text x='{number(middle)}' y='{number(y + self.cell_height / 2 + 4)}' {text}"
            return
        if not count:
            yield f"{box} fill='none' stroke='{scene.FAINT}' stroke-width='.7' stroke-dasharray='2 2'/>"
            return
        yield f"{box} fill='{scene.CELL}' stroke='{colour}' stroke-width='.7'/>"
        step, bar = (self.cell_width - 2) / len(there), self.cell_height * 0.42
        top = y + self.cell_height - bar - 1
        size = f"width='{number(step - min(0.8, step / 5))}' height='{number(bar)}' fill='{colour}'/>"
        for source in there.nonzero()[0].tolist():
            yield f"<rect x='{number(x + 1 + source * step)}' y='{number(top)}' {size}"
        if self.cell_width >= 20 and self.cell_height >= 20:
            yield f"<text x='{number(middle)}' y='{number(top - 2.5)}' class='k'>{count}/{self.whole}</text>"

    def arrows(self, round_: int) -> Iterator[str]:
        """The transfers of a round: down beside the right edge of their chunks, up beside the left one."""
        for src, dst, chunk, count, _ in scene.transfers(self.schedule, self.schedule.rounds[round_]):
            if src == dst:
                continue
            down = dst > src
            x = self.corner(0, chunk + count - 1)[0] + self.cell_width - 3 if down else self.corner(0, chunk)[0] + 3
            y, end = (self.corner(rank, 0)[1] + self.cell_height / 2 for rank in (src, dst))
            end += -4 if down else 4
            bulge = (6 + abs(dst - src)) * (1 if down else -1)
            curve = f"M{number(x)} {number(y)}Q{number(x + bulge)} {number((y + end) / 2)} {number(x)} {number(end)}"
            yield f"<path d='{curve}' class='a' marker-end='url(#to)'/>"
