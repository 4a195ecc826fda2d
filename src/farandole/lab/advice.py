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
        second = min(
            (each[place] for other, each in comparison.results.items() if other != name),
            key=lambda one: one.time_s,
            default=None,
        )
        said = [f"For {size}, take {name}: nothing else here is faster than its {format_time(best.time_s)}."]
        if second is not None:
            said.append(f"The next is {second.name}, with {format_time(second.time_s)}. {_difference(best, second)}")
    else:
        longer = f"{chosen} takes {format_time(mine.time_s)}, {_times(mine.time_s, best.time_s)}"
        said = [f"For {size}, take {name}: {format_time(best.time_s)}, where {longer}.", _difference(best, mine)]
    said.append(_goes_into(best))
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


def _difference(best: Simulation, other: Simulation) -> str:
    """What the faster one does less of: rounds, or time in the largest part of the other's critical path."""
    mine, theirs = best.parts(), other.parts()
    saved = {part: theirs[part] - mine.get(part, 0.0) for part in theirs}
    part = max(saved, key=lambda name: saved[name], default="")
    if not part or saved[part] <= 0:
        return f"{best.name} and {other.name} spend their time alike."
    rounds = ""
    if part in ("start-up", "latency") and best.rounds < other.rounds:
        rounds = f": it needs {counted(best.rounds, 'round')} instead of {other.rounds}"
    elif part == "transfer" and best.busiest(1) and other.busiest(1):
        less, more = best.busiest(1)[0], other.busiest(1)[0]
        if less.bytes < more.bytes:
            carries = f"{format_size(round(less.bytes))} instead of {format_size(round(more.bytes))}"
            rounds = f": its busiest link carries {carries}"
    return f"{best.name} saves {format_time(saved[part])} of {_PARTS[part]}{rounds}."


_PARTS = {
    "start-up": "starting messages",
    "transfer": "moving bytes",
    "latency": "latency",
    "reduction": "reducing",
    "late start": "late starts",
}


def _goes_into(best: Simulation) -> str:
    parts = best.parts()
    if not parts:
        return f"{best.name} takes no time here."
    most = max(parts, key=lambda name: parts[name])
    share = parts[most] / sum(parts.values())
    return f"{share:.0%} of its own time goes into {_PARTS[most]}; the bottleneck is {best.bottleneck}."
