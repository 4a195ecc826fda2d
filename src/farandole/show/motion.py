"""A schedule as one moving SVG: CSS moves it, without any script, so that it runs wherever an image may stand.

On the left the ranks, between which the chunks travel; on the right what each rank holds; below, what the round does.
It starts over when it has come to its end. Where motion is unwanted, it stands still at the end.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from farandole.captions import captions
from farandole.schedule import Schedule
from farandole.show import scene
from farandole.show.markup import document, element, number
from farandole.show.titles import goal, title

MOST_PARTS = 6_000
START_S, ROUND_S, END_S = 1.6, 1.9, 2.6
TRAVEL = 0.72
STAGE, LEFT, TOP = 340.0, 400.0, 64.0


def animated(schedule: Schedule) -> str:
    """A moving picture of the schedule, as an SVG document.

    Raises UsageError for a schedule with too many parts to be drawn.
    """
    n, chunks, rounds = schedule.ranks, schedule.chunks, len(schedule.rounds)
    scene.check_size(schedule, n * chunks * n + schedule.transfers, MOST_PARTS, "a moving picture")
    clock = Clock(rounds)
    step_x, step_y = min(200.0 if chunks == 1 else 88.0, 400 / chunks), min(66.0, 330 / n)
    holds = np.stack([stage.holds for stage in scene.stages(schedule)])
    parts = [f"<text x='24' y='32' class='h'>{escape(title(schedule))}</text>\n"]
    parts.extend(_picture(schedule, clock))
    parts.extend(_grid(schedule, clock, holds, step_x, step_y))
    width = max(LEFT + chunks * step_x + 24, 780)
    height = max(TOP + 30 + n * step_y, TOP + STAGE) + 104
    parts.extend(_captions(schedule, clock, height - 66, int((width - 48) / 7.6)))
    bar = f"<rect x='24' y='{number(height - 26)}' height='4' rx='2'"
    parts.append(f"{bar} width='{number(width - 48)}' fill='{scene.SLOT}'/>")
    parts.append(f"{bar} width='{number(width - 48)}' class='p' fill='{scene.SOFT}'/>")
    style = clock.style() + (
        f".p{{transform-origin:24px 0;animation:p {number(clock.total)}s linear infinite}}"
        "@keyframes p{0%{transform:scaleX(0)}100%{transform:scaleX(1)}}"
        "@media (prefers-reduced-motion:reduce){*{animation:none!important}}"
    )
    return document(width, height, title(schedule), f"The goal: {goal(schedule)}", "".join(parts), style)


@dataclass(slots=True)
class Clock:
    """When each round begins and arrives, and the animations that are used: those of one kind share their frames."""

    rounds: int
    used: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """The length of one run, in seconds."""
        return START_S + self.rounds * ROUND_S + END_S

    def arrives(self, round_: int) -> float:
        """When what a round sends is there."""
        return 100 * (START_S + (round_ + TRAVEL) * ROUND_S) / self.total

    def shown(self, first: int, end: int) -> str:
        """The class of what is there after ``first`` rounds and no more after ``end``; none if it always is."""
        if first == 0 and end > self.rounds:
            return ""
        name = f"v{first}-{end}"
        on = self.arrives(first - 1) if first else 0
        off = self.arrives(end - 1) if end <= self.rounds else 100
        self.used[name] = self._appears(on, off)
        return f"{name} e" if end > self.rounds else name

    def said(self, stage: int) -> str:
        """The class of the sentence of a round (0: of the start)."""
        name = f"s{stage}"
        on = self._from(stage - 1) if stage else 0
        self.used[name] = self._appears(on, self._from(stage) if stage < self.rounds else 100)
        return f"{name} e" if stage == self.rounds else name

    def _from(self, round_: int) -> float:
        return 100 * (START_S + round_ * ROUND_S) / self.total

    def flies(self, round_: int) -> str:
        """The class of what travels in a round, by the distance ``--x``, ``--y`` of its own."""
        name = f"t{round_}"
        on, off = self._from(round_), self.arrives(round_)
        self.used[name] = (
            f"0%,{_percent(on)}{{opacity:0;transform:translate(0,0)}}"
            f"{_percent(on + 0.01)}{{opacity:1;transform:translate(0,0);animation-timing-function:ease-in-out}}"
            f"{_percent(off)}{{opacity:1;transform:translate(var(--x),var(--y))}}"
            f"{_percent(off + 0.01)},100%{{opacity:0;transform:translate(var(--x),var(--y))}}"
        )
        return name

    @staticmethod
    def _appears(on: float, off: float) -> str:
        frames = f"0%,{_percent(on)}{{opacity:0}}{_percent(on + 0.01)}" if on > 0 else "0%"
        if off >= 100:
            return f"{frames},100%{{opacity:1}}"
        return f"{frames},{_percent(off)}{{opacity:1}}{_percent(off + 0.01)},100%{{opacity:0}}"

    def style(self) -> str:
        """The style sheet of all that was asked for."""
        names = ",".join(f".{name}" for name in self.used)
        rules = "".join(f".{name}{{animation-name:{name}}}@keyframes {name}{{{self.used[name]}}}" for name in self.used)
        every = f"opacity:0;animation-duration:{number(self.total)}s;animation-iteration-count:infinite"
        return f"{names}{{{every}}}{rules}.e{{opacity:1}}"


def _percent(value: float) -> str:
    return f"{value:.2f}%"


def _picture(schedule: Schedule, clock: Clock) -> Iterator[str]:
    """The ranks and the lines between them, and what travels along these."""
    n, tree = schedule.ranks, scene.tree_parents(schedule)
    radius = min(20.0, 260 / n) if tree else min(26.0, 90 * math.sin(math.pi / max(n, 3)))
    reach = STAGE / 2 - radius - 6
    points = [(24 + STAGE / 2 + x * reach, TOP + STAGE / 2 + y * reach) for x, y in scene.places(schedule)]
    lines = scene.pairs(schedule)
    if len(lines) <= 3 * n:
        for (x1, y1), (x2, y2) in ((points[a], points[b]) for a, b in lines):
            yield element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=scene.SLOT, stroke_width=2)
    for rank, (x, y) in enumerate(points):
        yield element("circle", cx=x, cy=y, r=radius, fill="#fff", stroke=scene.FAINT, stroke_width=1.5)
        yield _bold(x, y + 5, str(rank), size=min(15, radius * 0.8))
    yield "\n"
    for number_, round_ in enumerate(schedule.rounds):
        flies = clock.flies(number_)
        for transfer in scene.transfers(schedule, round_):
            yield _token(transfer, flies, points, radius)
    yield "\n"


def _token(transfer: tuple[int, int, int, int, bool], flies: str, points: list[scene.Point], radius: float) -> str:
    """The sign of a transfer, at its sender's edge, with the way to its receiver's edge."""
    src, dst, chunk, count, reduce = transfer
    dx, dy = points[dst][0] - points[src][0], points[dst][1] - points[src][1]
    size = min(20.0, radius * 1.1)
    away = (radius + size * 0.4) / (math.hypot(dx, dy) or 1)
    x, y = points[src][0] + dx * away, points[src][1] + dy * away
    text = f"{'+' if reduce else ''}{scene.label(chunk, count)}"
    half, colour, far = max(size / 2, 3.1 * len(text) + 4), scene.chunk_colour(chunk), max(0, 1 - 2 * away)
    sign = element(
        "rect", x=x - half, y=y - size / 2, width=2 * half, height=size, rx=size / 2 if reduce else 3, fill=colour,
        stroke="#fff", stroke_width=1.5,
    ) + _bold(x, y + 3.5, text, scene.text_on(colour))  # fmt: skip
    return element("g", sign, class_=flies, style=f"--x:{number(dx * far)}px;--y:{number(dy * far)}px")


def _bold(x: float, y: float, text: str, fill: str = scene.INK, size: float = 10) -> str:
    return element("text", text, x=x, y=y, class_="m", style=f"font-size:{number(size)}px;font-weight:600;fill:{fill}")


def _grid(schedule: Schedule, clock: Clock, holds: NDArray[np.bool_], step_x: float, step_y: float) -> Iterator[str]:
    """What each rank holds: every slot appears when its contribution arrives."""
    width, height = step_x - 5, step_y - 5
    for rank in range(schedule.ranks):
        y = TOP + 30 + rank * step_y + height / 2 + 4
        yield element("text", str(rank), x=LEFT - 8, y=y, class_="n", text_anchor="end")
    for chunk in range(schedule.chunks):
        x, colour = LEFT + chunk * step_x, scene.chunk_colour(chunk)
        yield element("rect", x=x, y=TOP + 6, width=width, height=16, rx=4, fill=colour)
        if width >= 12:
            yield _bold(x + width / 2, TOP + 18, str(chunk), scene.text_on(colour))
        for rank in range(schedule.ranks):
            box = {"x": x, "y": TOP + 30 + rank * step_y, "width": width, "height": height, "rx": 4.0}
            yield from _cell(clock, holds[:, rank, chunk, :], box, colour, scene.whole(schedule))
        yield "\n"


def _cell(clock: Clock, there: NDArray[np.bool_], box: dict[str, float], colour: str, whole: int) -> Iterator[str]:
    """One cell through all rounds; ``there`` has shape (rounds + 1, ranks)."""
    yield element("rect", **box, fill=scene.CELL, stroke=scene.FAINT, stroke_width=0.8)
    step = (box["width"] - 4) / there.shape[1]
    slot = {"y": box["y"] + 2, "width": step - min(1, step / 5), "height": box["height"] - 4}
    for source in range(there.shape[1]):
        for first, end in _spans(there[:, source]):
            at = box["x"] + 2 + source * step
            yield element("rect", x=at, **slot, fill=colour, class_=clock.shown(first, end))
    for first, end in _spans(there.sum(axis=1) >= whole):
        tick = _bold(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 + 5, "✓", scene.text_on(colour), 14)
        yield element("g", element("rect", **box, fill=colour) + tick, class_=clock.shown(first, end))


def _spans(there: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """From when to when something is there, by rounds done; the end of what stays is past the last round."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(np.int8)))
    return [(int(first), int(end)) for first, end in zip(edges[::2], edges[1::2], strict=True)]


def _captions(schedule: Schedule, clock: Clock, y: float, longest: int) -> Iterator[str]:
    """The sentence of each round, broken into lines of at most ``longest`` letters."""
    said = [f"The goal: {goal(schedule)}", *captions(schedule)]
    for stage, text in enumerate(said):
        lines = "".join(
            f"<tspan x='24' y='{number(y + 19 * line)}'>{escape(part)}</tspan>"
            for line, part in enumerate(textwrap.wrap(text, longest))
        )
        yield f"<text class='{clock.said(stage)}' style='font-size:14px'>{lines}</text>\n"
