"""How reduce-scatter, all-gather and all-reduce belong together, as one picture.

What is held before, between and after is not drawn by hand: it is what the proof finds for the ring's schedules.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.algorithms import build
from farandole.errors import UsageError
from farandole.show import scene
from farandole.show.markup import document, number

FEWEST, MOST = 2, 8
CELL_WIDTH, CELL_HEIGHT = 30.0, 24.0
GAP, APART, LEFT, TOP = 4.0, 168.0, 44.0, 118.0


def svg(ranks: int = 4) -> str:
    """The picture for 2 to 8 ranks, as an SVG document; UsageError for others."""
    if not FEWEST <= ranks <= MOST:
        raise UsageError(f"the picture is for {FEWEST} to {MOST} ranks, not {ranks}", got=ranks)
    scattered = scene.stages(build("reduce_scatter", "ring", ranks))
    before, middle = scattered[0], scattered[-1]
    after = scene.stages(build("all_reduce", "ring", ranks))[-1]
    owned = np.zeros((ranks, ranks), np.bool_)
    np.fill_diagonal(owned, val=True)
    everything = np.ones((ranks, ranks), np.bool_)
    width = ranks * (CELL_WIDTH + GAP) - GAP
    height = ranks * (CELL_HEIGHT + GAP) - GAP
    xs = [LEFT + place * (width + APART) for place in range(3)]
    heads = ("every rank has values of its own", "each rank has its part of the sum", "every rank has the whole sum")
    stages = ((before, everything), (middle, owned), (after, everything))
    parts: list[str] = []
    for x, head, (stage, kept) in zip(xs, heads, stages, strict=True):
        parts.append(f"<text x='{number(x + width / 2)}' y='{number(TOP + height + 24)}' class='m n'>{head}</text>")
        parts.extend(_grid(stage, kept, x))
    share = f"{ranks - 1}/{ranks}"
    y = TOP + height / 2
    parts.extend(_step(xs[0] + width, xs[1], y, "reduce-scatter", f"sends {share} of the buffer"))
    parts.extend(_step(xs[1] + width, xs[2], y, "all-gather", f"sends {share} of the buffer"))
    left, right = xs[0] + width / 2, xs[2] + width / 2
    parts.append(f"<path d='M{number(left)} 78V54H{number(right)}V76' class='b' marker-end='url(#to)'/>")
    parts.append(
        f"<text x='{number((left + right) / 2)}' y='44' class='m t'>all-reduce = reduce-scatter, then all-gather</text>"
        f"<text x='{number((left + right) / 2)}' y='70' class='m n'>each rank sends 2 × {share} of the buffer</text>"
    )
    about = (
        f"On {ranks} ranks: reduce-scatter leaves each rank with its part of the sum, all-gather gives every rank all"
        " parts; the two together are an all-reduce."
    )
    style = (
        ".m,.n{font-size:11px}.t{font-weight:650}.t.m{font-size:14px}"
        f".b{{fill:none;stroke:{scene.INK};stroke-width:1.6}}"
    )
    return document(
        xs[2] + width + 28, TOP + height + 44, "Reduce-scatter, all-gather and all-reduce", about, "".join(parts), style
    )


def _step(left: float, right: float, y: float, name: str, cost: str) -> Iterator[str]:
    middle = (left + right) / 2
    yield f"<path d='M{number(left + 14)} {number(y)}H{number(right - 34)}' class='b' marker-end='url(#to)'/>"
    yield f"<text x='{number(middle - 10)}' y='{number(y - 12)}' class='m t'>{name}</text>"
    yield f"<text x='{number(middle - 10)}' y='{number(y + 20)}' class='m n'>{cost}</text>\n"


def _grid(stage: scene.Stage, kept: np.ndarray[tuple[int, int], np.dtype[np.bool_]], left: float) -> Iterator[str]:
    """A row per rank, a column per part; what need not be kept is left empty."""
    ranks = len(kept)
    for rank in range(ranks):
        y = TOP + rank * (CELL_HEIGHT + GAP)
        yield f"<text x='{number(left - 7)}' y='{number(y + 16)}' class='n' text-anchor='end'>{rank}</text>"
        for chunk in range(ranks):
            x, colour = left + chunk * (CELL_WIDTH + GAP), scene.chunk_colour(chunk)
            box = f"<rect x='{number(x)}' y='{number(y)}' width='{CELL_WIDTH:g}' height='{CELL_HEIGHT:g}' rx='3'"
            there = stage.holds[rank, chunk]
            if not kept[rank, chunk]:
                yield f"{box} fill='none' stroke='{scene.FAINT}' stroke-dasharray='2 2'/>"
            elif there.all():
                yield f"{box} fill='{colour}'/>"
                text = f"style='font-size:12px;fill:{scene.text_on(colour)}'>Σ</text>"
                yield f"<text x='{number(x + CELL_WIDTH / 2)}' y='{number(y + 16.5)}' class='m' {text}"
            else:
                yield f"{box} fill='{scene.CELL}' stroke='{colour}' stroke-width='.8'/>"
                step = (CELL_WIDTH - 4) / ranks
                for source in there.nonzero()[0].tolist():
                    slot = f"x='{number(x + 2 + source * step)}' y='{number(y + 2)}' width='{number(step - 0.6)}'"
                    yield f"<rect {slot} height='{CELL_HEIGHT - 4:g}' fill='{colour}'/>"
    yield "\n"
