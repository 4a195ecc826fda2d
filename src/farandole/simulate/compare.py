"""All algorithms of a collective on one cluster, over sizes: which one wins where."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from farandole.algorithms.registry import REGISTRY
from farandole.cluster.model import Cluster
from farandole.collectives import collective as find_collective
from farandole.errors import UsageError
from farandole.simulate.result import Simulation
from farandole.simulate.settings import Settings
from farandole.simulate.worlds import predict
from farandole.units import format_size, format_time

# Okabe and Ito's colours, which colour-blind readers can tell apart; marks differ too.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#4d4d4d", "#8c6d1f")
_DASHES = ("", "6 3", "2 3")
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 900, 560, 80, 50, 230, 60


@dataclass(frozen=True, slots=True)
class Comparison:
    """The simulations by algorithm and size: ``results[name][i]`` is for ``sizes[i]``."""

    collective: str
    cluster: Cluster
    sizes: tuple[int, ...]
    results: dict[str, tuple[Simulation, ...]]

    def best(self) -> list[str]:
        """The fastest algorithm for each size."""
        return [min(self.results, key=lambda name: self.results[name][i].time_s) for i in range(len(self.sizes))]

    def _repr_svg_(self) -> str:
        return to_svg(self)

    def spans(self) -> list[tuple[int, int, str]]:
        """(first size, last size, the algorithm that is fastest from one to the other)."""
        spans: list[tuple[int, int, str]] = []
        for size, name in zip(self.sizes, self.best(), strict=True):
            if spans and spans[-1][2] == name:
                spans[-1] = (spans[-1][0], size, name)
            else:
                spans.append((size, size, name))
        return spans


def candidates(collective: str, cluster: Cluster) -> list[str]:
    """The algorithms for a collective, and hierarchies over the cluster's hosts where there are several.

    Raises UnknownNameError for a collective that there is not.
    """
    collective = find_collective(collective).name
    names = sorted(name for what, name in REGISTRY if what == collective)
    per_host, rest = divmod(cluster.ranks, cluster.hosts)
    if "hierarchical" in names and not rest and 1 < per_host < cluster.ranks:
        names[names.index("hierarchical")] = f"hierarchical:levels={per_host}x{cluster.hosts}"
    return names


def compare(
    collective: str,
    cluster: Cluster,
    sizes: Sequence[int],
    *,
    algorithms: Sequence[str] = (),
    ranks: int | None = None,
    root: int = 0,
    settings: Settings | None = None,
    begins: Callable[[str], object] = lambda name: None,
) -> Comparison:
    """Simulate every algorithm (or those named) at every size, in bytes.

    Sizes need not be whole numbers of elements. ``begins`` is told each algorithm before its turn.

    Raises UsageError where there is nothing to compare.
    """
    used = cluster.first(ranks or cluster.ranks)
    names = list(algorithms) or candidates(collective, used)
    if not names or not sizes:
        raise UsageError("nothing to compare: at least one algorithm and one size are needed")
    results = {}
    for name in names:
        begins(name)
        results[name] = tuple(
            predict(collective, name, used, size, root=root, settings=settings, itemsize=1 if size % 4 else 4)
            for size in sizes
        )
    return Comparison(collective, used, tuple(sizes), results)


def to_svg(comparison: Comparison) -> str:
    """Time over size for every algorithm, both axes logarithmic, the best one's span below."""
    sizes = comparison.sizes
    times = [result.time_s for results in comparison.results.values() for result in results if result.time_s > 0]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    high = max(high, low + 1)
    first, last = math.log2(sizes[0] or 1), math.log2(max(sizes[-1], (sizes[0] or 1) * 2))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x(size: int) -> float:
        return _LEFT + (math.log2(size or 1) - first) / (last - first) * (right - _LEFT)

    def y(time_s: float) -> float:
        return bottom - (math.log10(max(time_s, 10.0**low)) - low) / (high - low) * (bottom - _TOP)

    title = f"{comparison.collective} on {comparison.cluster.ranks} ranks of {comparison.cluster.name}, simulated"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        "<style>text{font:12px sans-serif;fill:#1c2733}.grid{stroke:#d5dde5}svg{background:#fff}</style>",
        f'<text x="{_LEFT}" y="24" font-weight="bold">{escape(title)}</text>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{format_time(10.0**power)}</text>')
    for size in sizes[:: max(1, len(sizes) // 8)]:
        parts.append(f'<line class="grid" x1="{x(size):.1f}" x2="{x(size):.1f}" y1="{_TOP}" y2="{bottom}"/>')
        label = format_size(size)
        parts.append(f'<text x="{x(size):.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    parts.extend(_curves(comparison, x, y, right))
    for begin, end, name in comparison.spans():
        text = f"{format_size(begin)} to {format_size(end)}: {name}"
        parts.append(
            f'<line x1="{x(begin) - 4:.1f}" x2="{x(end) + 4:.1f}" y1="{bottom + 32}" y2="{bottom + 32}"'
            f' stroke="{_colour(comparison, name)}" stroke-width="6"><title>{escape(text)}</title></line>'
        )
    parts.append(f'<text x="{_LEFT}" y="{bottom + 52}">the bar shows the fastest for each size</text></svg>')
    return "\n".join(parts) + "\n"


def _colour(comparison: Comparison, name: str) -> str:
    return _COLOURS[list(comparison.results).index(name) % len(_COLOURS)]


def _curves(
    comparison: Comparison, x: Callable[[int], float], y: Callable[[float], float], right: int
) -> Iterator[str]:
    for i, (name, results) in enumerate(comparison.results.items()):
        points = " ".join(f"{x(r.size_bytes):.1f},{y(r.time_s):.1f}" for r in results)
        colour, dash = _colour(comparison, name), _DASHES[i // len(_COLOURS) % len(_DASHES)]
        yield (
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}">'
            f"<title>{escape(name)}</title></polyline>"
        )
        at = _TOP + 18 * i
        yield (
            f'<line x1="{right + 12}" x2="{right + 34}" y1="{at}" y2="{at}" stroke="{colour}" stroke-width="3"'
            f' stroke-dasharray="{dash}"/>'
        )
        yield f'<text x="{right + 40}" y="{at + 4}">{escape(name)}</text>'
