"""Which algorithm to take, and why, from the simulations of all of them."""

from __future__ import annotations

from farandole.simulate import Comparison, Simulation
from farandole.units import counted, format_size, format_time


def advice(comparison: Comparison, chosen: str, size_bytes: int) -> list[str]:
    """Sentences: the fastest for the size, how the chosen one compares, what makes the difference, and other sizes."""
    place = comparison.sizes.index(size_bytes)
    name = comparison.best()[place]
    best, mine = comparison.results[name][place], comparison.results[chosen][place]
    size = format_size(size_bytes)
    if name == chosen:
        rest = {other: each[place] for other, each in comparison.results.items() if other != name}
        second = min(rest, key=lambda other: rest[other].time_s, default="")
        said = [f"For {size}, take {name}: nothing else here is faster than its {format_time(best.time_s)}."]
        if second:
            next_best = f"The next is {second}, with {format_time(rest[second].time_s)}."
            said.append(f"{next_best} {_difference((name, best), (second, rest[second]))}")
    else:
        longer = f"{chosen} takes {format_time(mine.time_s)}, {_times(mine.time_s, best.time_s)}"
        said = [
            f"For {size}, take {name}: {format_time(best.time_s)}, where {longer}.",
            _difference((name, best), (chosen, mine)),
        ]
    said.append(_goes_into(name, best))
    spans = comparison.spans()
    if len(spans) > 1:
        reach = "; ".join(
            f"{format_size(first) if first == last else f'{format_size(first)} to {format_size(last)}'}: {winner}"
            for first, last, winner in spans
        )
        said.append(f"By size, of those looked at, the fastest are {reach}.")
    return said


def _times(long: float, short: float) -> str:
    if short <= 0 or long <= short:
        return "as long"
    factor = long / short
    return f"{factor:.1f} times as long" if factor >= 1.1 else f"{factor - 1:.1%} longer"


def _difference(fast: tuple[str, Simulation], slow: tuple[str, Simulation]) -> str:
    """What the faster one does less of: rounds, or time in the largest part of the other's critical path."""
    (name, best), (other_name, other) = fast, slow
    mine, theirs = best.parts(), other.parts()
    saved = {part: theirs[part] - mine.get(part, 0.0) for part in theirs}
    part = max(saved, key=lambda name: saved[name], default="")
    if not part or saved[part] <= 0:
        return f"{name} and {other_name} spend their time alike."
    because = ""
    if part in ("start-up", "latency") and best.rounds < other.rounds:
        because = f": it needs {counted(best.rounds, 'round')} instead of {other.rounds}"
    elif part == "transfer" and best.busiest(1) and other.busiest(1):
        less, more = best.busiest(1)[0].bytes, other.busiest(1)[0].bytes
        if less < more:
            because = f": its busiest link carries {format_size(round(less))} instead of {format_size(round(more))}"
    return f"{name} saves {format_time(saved[part])} of {_PARTS[part]}{because}."


_PARTS = {
    "start-up": "starting messages",
    "transfer": "moving bytes",
    "latency": "latency",
    "reduction": "reducing",
    "late start": "late starts",
}


def _goes_into(name: str, best: Simulation) -> str:
    parts = best.parts()
    if not parts:
        return f"{name} takes no time here."
    most = max(parts, key=lambda part: parts[part])
    share = parts[most] / sum(parts.values())
    return f"{share:.0%} of the time of {name} goes into {_PARTS[most]}; the bottleneck is {best.bottleneck}."
