"""A schedule as a GIF, for where neither a page nor an SVG may stand: the same picture as the moving SVG's.

Drawn by Pillow, which comes with the extra ``gif``; nothing else here needs it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from os import PathLike
from typing import TYPE_CHECKING, Any

from farandole.captions import captions
from farandole.errors import UsageError
from farandole.schedule import Schedule
from farandole.show import scene
from farandole.show.titles import goal, title

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

MOST_PARTS = 600_000
FRAMES, FRAME_MS, REST_MS, END_MS = 9, 70, 650, 2200
STAGE, LEFT, TOP, WIDTH = 340.0, 400.0, 64.0, 820
SCALE = 2  # drawn at twice the size and made smaller, so that edges are smooth


def write_gif(schedule: Schedule, path: str | PathLike[str]) -> None:
    """Write the moving picture to ``path``.

    Raises UsageError without Pillow, and for a schedule with too many parts to be drawn.
    """
    n, rounds = schedule.ranks, len(schedule.rounds)
    parts = n * schedule.chunks * n * (rounds + 1) * FRAMES + schedule.transfers * FRAMES
    scene.check_size(schedule, parts, MOST_PARTS, "a GIF")
    try:
        from PIL import Image  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError("a GIF is drawn by Pillow, which is not installed: pip install 'farandole[gif]'") from None
    frames: list[Picture] = []
    lengths: list[int] = []
    for frame, length in _frames(schedule):
        small = frame.resize((frame.width // SCALE, frame.height // SCALE), Image.Resampling.LANCZOS)
        frames.append(small.quantize(128, dither=Image.Dither.NONE))
        lengths.append(length)
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=lengths, loop=0, optimize=True)


def _frames(schedule: Schedule) -> Iterator[tuple[Picture, int]]:
    """The pictures in order, and how long each stands, in milliseconds."""
    sheet = _Sheet(schedule)
    held = scene.stages(schedule)
    said = [f"The goal: {goal(schedule)}", *captions(schedule)]
    yield sheet.drawn(held[0], said[0], 0.0), END_MS
    rounds = len(schedule.rounds)
    for number in range(rounds):
        for step in range(FRAMES):
            part = (step + 1) / FRAMES
            eased = 2 * part * part if part < 0.5 else 1 - (2 - 2 * part) ** 2 / 2
            yield sheet.drawn(held[number], said[number + 1], (number + part) / rounds, (number, eased)), FRAME_MS
        yield sheet.drawn(held[number + 1], said[number + 1], (number + 1) / rounds), REST_MS
    yield sheet.drawn(held[rounds], said[rounds], 1.0), END_MS


class _Sheet:
    """Where everything lies, and the fonts; ``drawn`` makes one picture of it."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        n, chunks = schedule.ranks, schedule.chunks
        self.step_x = min(200.0 if chunks == 1 else 88.0, 400 / chunks)
        self.step_y = min(66.0, 330 / n)
        self.height = int(max(TOP + 30 + n * self.step_y, TOP + STAGE) + 104)
        self.whole = scene.whole(schedule)
        self.lines = scene.pairs(schedule)
        tree = scene.tree_parents(schedule)
        self.radius = min(20.0, 260 / n) if tree else min(26.0, 90 * math.sin(math.pi / max(n, 3)))
        reach = STAGE / 2 - self.radius - 6
        self.points = [(24 + STAGE / 2 + x * reach, TOP + STAGE / 2 + y * reach) for x, y in scene.places(schedule)]

    def drawn(self, stage: scene.Stage, said: str, progress: float, flight: tuple[int, float] | None = None) -> Picture:
        """What is held, the sentence, how far it all is (0 to 1), and a round on its way with the share it has come."""
        from PIL import Image, ImageDraw  # noqa: PLC0415 - an extra

        image = Image.new("RGB", (WIDTH * SCALE, self.height * SCALE), "#ffffff")
        pen = _Pen(ImageDraw.Draw(image))
        pen.text(24, 26, title(self.schedule), 19, anchor="lm")
        self._draw_ranks(pen)
        self._draw_grid(pen, stage)
        if flight is not None:
            self._draw_flight(pen, *flight)
        for line, part in enumerate(textwrap.wrap(said, 98)):
            pen.text(24, self.height - 70 + 20 * line, part, 14.5, anchor="lm")
        pen.box(24, self.height - 26, WIDTH - 48, 4, scene.SLOT, 2)
        if progress > 0:
            pen.box(24, self.height - 26, max(4, (WIDTH - 48) * progress), 4, scene.SOFT, 2)
        return image

    def _draw_ranks(self, pen: _Pen) -> None:
        if len(self.lines) <= 3 * self.schedule.ranks:
            for a, b in self.lines:
                pen.line(self.points[a], self.points[b], scene.SLOT, 2)
        for rank, (x, y) in enumerate(self.points):
            pen.disc(x, y, self.radius, "#ffffff", scene.FAINT)
            pen.text(x, y, str(rank), min(15, self.radius * 0.9))

    def _draw_flight(self, pen: _Pen, number: int, share: float) -> None:
        size = min(20.0, self.radius * 1.1)
        for src, dst, chunk, count, reduce in scene.transfers(self.schedule, self.schedule.rounds[number]):
            (x, y), (to_x, to_y) = self.points[src], self.points[dst]
            text = f"{'+' if reduce else ''}{scene.label(chunk, count)}"
            half = max(size / 2, 3.4 * len(text) + 4)
            colour = scene.chunk_colour(chunk)
            here_x, here_y = x + (to_x - x) * share, y + (to_y - y) * share
            pen.box(
                here_x - half - 1, here_y - size / 2 - 1, 2 * half + 2, size + 2, "#ffffff", size / 2 if reduce else 4
            )
            pen.box(here_x - half, here_y - size / 2, 2 * half, size, colour, size / 2 if reduce else 3)
            pen.text(here_x, here_y, text, size * 0.58, scene.text_on(colour))

    def _draw_grid(self, pen: _Pen, stage: scene.Stage) -> None:
        n, width, height = self.schedule.ranks, self.step_x - 5, self.step_y - 5
        for rank in range(n):
            pen.text(LEFT - 8, TOP + 30 + rank * self.step_y + height / 2, str(rank), 11, scene.SOFT, "rm")
        for chunk in range(self.schedule.chunks):
            x, colour = LEFT + chunk * self.step_x, scene.chunk_colour(chunk)
            pen.box(x, TOP + 6, width, 16, colour, 4)
            if width >= 12:
                pen.text(x + width / 2, TOP + 14, str(chunk), 11, scene.text_on(colour))
            for rank in range(n):
                y, there = TOP + 30 + rank * self.step_y, stage.holds[rank, chunk]
                count = int(there.sum())
                if count >= self.whole:
                    pen.box(x, y, width, height, colour, 4)
                    pen.text(
                        x + width / 2,
                        y + height / 2,
                        f"{count}/{self.whole}",
                        min(13, width / 3),
                        scene.text_on(colour),
                    )
                else:
                    pen.box(x, y, width, height, scene.CELL, 4, scene.FAINT)
                    step = (width - 4) / n
                    for source in there.nonzero()[0].tolist():
                        pen.box(x + 2 + source * step, y + 2, step - min(1, step / 5), height - 4, colour, 0)
                if stage.fresh[rank, chunk]:
                    pen.box(x - 1, y - 1, width + 2, height + 2, None, 5, scene.INK, 2)


class _Pen:
    """Draws in the sheet's units on the larger picture."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def text(self, x: float, y: float, text: str, size: float, fill: str = scene.INK, anchor: str = "mm") -> None:
        self._draw.text((x * SCALE, y * SCALE), text, fill=fill, font=_font(size * SCALE), anchor=anchor)

    def box(
        self, x: float, y: float, width: float, height: float, fill: str | None, corner: float,
        outline: str | None = None, line: float = 1,
    ) -> None:  # fmt: skip
        corners = [x * SCALE, y * SCALE, (x + width) * SCALE, (y + height) * SCALE]
        self._draw.rounded_rectangle(corners, corner * SCALE, fill, outline, round(line * SCALE))

    def disc(self, x: float, y: float, radius: float, fill: str, outline: str) -> None:
        corners = [(x - radius) * SCALE, (y - radius) * SCALE, (x + radius) * SCALE, (y + radius) * SCALE]
        self._draw.ellipse(corners, fill, outline, round(1.5 * SCALE))

    def line(self, start: scene.Point, end: scene.Point, fill: str, width: float) -> None:
        self._draw.line(
            [start[0] * SCALE, start[1] * SCALE, end[0] * SCALE, end[1] * SCALE], fill, round(width * SCALE)
        )


@lru_cache(maxsize=32)
def _font(size: float) -> Any:
    from PIL import ImageFont  # noqa: PLC0415 - an extra

    return ImageFont.load_default(size)
