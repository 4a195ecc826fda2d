"""Which algorithm a call gets that asks for none, by a rule; a profile's measurements come before it.

A short message is decided by the number of rounds, a long one by the bytes each rank moves; over shared
memory every rank reaches every other at once, so the direct algorithms have both few rounds and little
traffic. Only for the shortest all-reduces is one round with everyone's whole buffer faster than two.
"""

from __future__ import annotations

from farandole.units import format_size

NAIVE_UP_TO_BYTES = 28 << 10  # read by each rank, of all others together
_DEFAULTS = {"barrier": "dissemination"}


def choose(collective: str, ranks: int, size_bytes: int) -> str:
    """The algorithm for a buffer of ``size_bytes`` on ``ranks`` ranks.

    >>> choose("all_reduce", 4, 8), choose("all_reduce", 4, 1 << 20)
    ('naive', 'direct')
    """
    if collective == "all_reduce" and size_bytes * (ranks - 1) <= NAIVE_UP_TO_BYTES:
        return "naive"
    return _DEFAULTS.get(collective, "direct")


def rule(collective: str, ranks: int, size_bytes: int) -> str:
    """Why, in words.

    >>> rule("all_reduce", 4, 8)
    'each rank reads at most 28KiB of all others together, so one round is faster than two'
    """
    name = choose(collective, ranks, size_bytes)
    if name == "naive":
        limit = format_size(NAIVE_UP_TO_BYTES)
        return f"each rank reads at most {limit} of all others together, so one round is faster than two"
    if name == "direct":
        return "over shared memory every rank reaches every other at once, with few rounds and little traffic"
    return "it has the fewest rounds"
