"""Which of several algorithms is fastest, given times that were taken in turns. Pure functions.

The rules:

- A round is one turn for each algorithm, so what disturbs the machine in one round disturbs all of them alike.
  Two algorithms are compared round by round.
- One *beats* another if it takes at least MARGIN less in the median round, and is the faster one in so many rounds
  that chance alone would do as much in one of fifty cases at most. Fewer than six rounds prove nothing.
- The default stays unless something beats it. Of what beats it, the fastest is taken; or one that is listed before
  the fastest, if the fastest does not beat it: what is simpler is listed first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MARGIN = 0.05
LUCK = 0.02
HOPELESS = 1.5
LEAST_ROUNDS = 6

Times = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Summary:
    """One algorithm's times, in seconds a call: the median over its rounds, and the quartiles."""

    algorithm: str
    median_s: float
    low_s: float
    high_s: float
    rounds: int


def winner(times: Times, default: str) -> str:
    """The algorithm to use; ``times`` are seconds a call by round, the simplest algorithm first.

    An algorithm that has left the contest has fewer rounds than the others.

    >>> winner({"direct": [2.0] * 6, "ring": [1.0] * 6}, "direct")
    'ring'
    >>> winner({"direct": [2.0] * 5, "ring": [1.0] * 5}, "direct")
    'direct'
    """
    better = [name for name in times if beats(times[name], times[default])]
    if not better:
        return default
    fastest = min(better, key=lambda name: statistics.median(times[name]))
    return next(name for name in better if name == fastest or not beats(times[fastest], times[name]))


def beats(times: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the first is faster than the second by more than the noise, over the rounds that both had."""
    ratios = [mine / theirs for mine, theirs in zip(times, others, strict=False)]
    wins = sum(ratio < 1 for ratio in ratios)
    return bool(ratios) and wins >= wins_needed(len(ratios)) and statistics.median(ratios) <= 1 - MARGIN


def wins_needed(rounds: int) -> int:
    """In how many of so many rounds one must be faster; more than ``rounds`` where no number would do.

    >>> wins_needed(5), wins_needed(6), wins_needed(15)
    (6, 6, 12)
    """
    chance, needed = 0.0, rounds + 1
    while needed > 0:
        chance += math.comb(rounds, needed - 1) / 2**rounds
        if chance > LUCK:
            break
        needed -= 1
    return needed


def hopeless(times: Times, default: str) -> set[str]:
    """Those that never came near the fastest, and need not go on; never the default."""
    best = min(statistics.median(each) for each in times.values())
    return {name for name, each in times.items() if name != default and min(each) > HOPELESS * best}


def summaries(times: Times) -> list[Summary]:
    """The algorithms, the fastest first."""
    rows = []
    for name, each in times.items():
        quartiles = statistics.quantiles(each, n=4, method="inclusive") if len(each) > 1 else [each[0]] * 3
        rows.append(Summary(name, statistics.median(each), quartiles[0], quartiles[2], len(each)))
    return sorted(rows, key=lambda row: row.median_s)
