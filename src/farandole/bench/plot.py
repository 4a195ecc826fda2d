"""A sweep as an SVG: one panel for each collective and number of ranks, time over size, both logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from farandole.units import counted, format_size, format_time

_COLOURS = {
    "farandole": "#d1495b",
    "gloo": "#edae49",
    "openmpi": "#00798c",
    "mpich": "#7a5195",
    "intelmpi": "#3d6b35",
}
_OTHER = "#666666"
_WIDTH, _HEIGHT = 330.0, 240.0  # of a panel's frame
_LEFT, _TOP, _GAP_X, _GAP_Y, _LEGEND = 66.0, 34.0, 78.0, 76.0, 34.0

Row = dict[str, Any]


def plot(results: Sequence[Row]) -> str:
    """The picture of the ``results`` of a report; those that were not right are left out."""
    shown = [row for row in results if row["checked"]]
    collectives = list(dict.fromkeys(row["collective"] for row in shown))
    ranks = sorted({row["ranks"] for row in shown})
    libraries = list(dict.fromkeys(row["library"] for row in shown))
    width = _LEFT + len(ranks) * (_WIDTH + _GAP_X)
    height = _LEGEND + _TOP + len(collectives) * (_HEIGHT + _GAP_Y)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, sans-serif" font-size="12" role="img">'
        ),
        "<title>Median time over size, by library</title>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        *_legend(libraries),
    ]
    for line, collective in enumerate(collectives):
        for column, count in enumerate(ranks):
            here = [row for row in shown if row["collective"] == collective and row["ranks"] == count]
            x, y = _LEFT + column * (_WIDTH + _GAP_X), _LEGEND + _TOP + line * (_HEIGHT + _GAP_Y)
            if here:
                parts += _panel(here, libraries, f"{collective}, {counted(count, 'rank')}", x, y)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(libraries: Sequence[str]) -> list[str]:
    parts = []
    for number, name in enumerate(libraries):
        x = _LEFT + 110 * number
        parts.append(f'<rect x="{x:.1f}" y="14" width="18" height="4" fill="{_COLOURS.get(name, _OTHER)}"/>')
        parts.append(f'<text x="{x + 24:.1f}" y="20" fill="#222222">{escape(name)}</text>')
    return parts


def _panel(rows: Sequence[Row], libraries: Sequence[str], title: str, left: float, top: float) -> list[str]:
    sizes, times = [row["size_bytes"] for row in rows], [row["median_s"] for row in rows]
    low_size, high_size = math.log2(min(sizes)), max(math.log2(max(sizes)), math.log2(min(sizes)) + 1)
    low_time = math.floor(math.log10(min(times)))
    high_time = max(math.ceil(math.log10(max(times))), low_time + 1)

    def x(size_bytes: float) -> float:
        return left + _WIDTH * (math.log2(size_bytes) - low_size) / (high_size - low_size)

    def y(time_s: float) -> float:
        return top + _HEIGHT * (high_time - math.log10(time_s)) / (high_time - low_time)

    parts = [f'<text x="{left:.1f}" y="{top - 10:.1f}" font-weight="600" fill="#222222">{escape(title)}</text>']
    for power in range(low_time, high_time + 1):
        at = y(10.0**power)
        parts.append(f'<path d="M{left:.1f} {at:.1f}h{_WIDTH:.1f}" stroke="#dddddd"/>')
        label = escape(format_time(10.0**power).replace(".00", "").replace(".0", ""))
        parts.append(f'<text x="{left - 8:.1f}" y="{at + 4:.1f}" text-anchor="end" fill="#444444">{label}</text>')
    for size in _labelled(sorted(set(sizes))):
        parts.append(f'<path d="M{x(size):.1f} {top:.1f}v{_HEIGHT:.1f}" stroke="#eeeeee"/>')
        parts.append(
            f'<text x="{x(size):.1f}" y="{top + _HEIGHT + 18:.1f}" text-anchor="middle" fill="#444444">'
            f"{escape(format_size(size))}</text>"
        )
    for name in libraries:
        line = sorted((row["size_bytes"], row["median_s"]) for row in rows if row["library"] == name)
        if line:
            points = " ".join(f"{x(size):.1f},{y(time):.1f}" for size, time in line)
            colour, thick = _COLOURS.get(name, _OTHER), 3 if name == "farandole" else 1.6
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{thick}"/>')
            parts += [f'<circle cx="{x(size):.1f}" cy="{y(time):.1f}" r="2.4" fill="{colour}"/>' for size, time in line]
    return parts


def _labelled(sizes: Sequence[int]) -> Sequence[int]:
    """At most six of them, evenly spread, so that labels do not run into each other."""
    step = math.ceil(len(sizes) / 6)
    return sizes[::step]
