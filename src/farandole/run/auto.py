"""Which algorithm a call gets that asks for none, by a table that is shipped; a profile's measurements come before it.

Over shared memory every rank reaches every other at once, so the direct algorithms have both few rounds and little
traffic, and nothing was found to beat them but what the table says. Only for short all-reduces is one round with
everyone's whole buffer faster than two; the more so where ranks share a core, and each round makes them change places.
All of these add up in the order of the ranks. The measurements are in docs/choosing.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from farandole.units import format_size

_ANY = 1 << 62


@dataclass(frozen=True, slots=True)
class Row:
    """What is taken for ``collective`` where there are more than ``per_core`` ranks for each core.

    Up to ``most_bytes`` of a buffer, and ``most_read_bytes`` of those of all other ranks together.
    """

    collective: str
    algorithm: str
    why: str
    per_core: int = 0
    most_bytes: int = _ANY
    most_read_bytes: int = _ANY

    def fits(self, collective: str, ranks: int, size_bytes: int, cores: int) -> bool:
        """Whether it is for such a call."""
        return (
            collective == self.collective
            and ranks > self.per_core * (cores or ranks)
            and size_bytes <= self.most_bytes
            and size_bytes * (ranks - 1) <= self.most_read_bytes
        )


def _one_round(most_read_bytes: int, per_core: int) -> Row:
    limit = format_size(most_read_bytes)
    why = f"each rank reads at most {limit} of all others together, so one round is faster than two"
    return Row("all_reduce", "naive", why, per_core=per_core, most_read_bytes=most_read_bytes)


# The first that fits counts.
TABLE = (
    _one_round(24 << 10, per_core=3),
    Row(
        "all_reduce",
        "parameter_server",
        "of so many ranks on each core, all wait for one, and none for every other",
        per_core=3,
        most_bytes=32 << 10,
    ),
    _one_round(64 << 10, per_core=1),
    _one_round(28 << 10, per_core=0),
    Row("barrier", "dissemination", "it has the fewest rounds"),
)
_WHY_DIRECT = "over shared memory every rank reaches every other at once, with few rounds and little traffic"


def choose(collective: str, ranks: int, size_bytes: int, cores: int) -> str:
    """The algorithm for a buffer of ``size_bytes`` on ``ranks`` ranks that share ``cores``; 0: as many as ranks.

    >>> choose("all_reduce", 4, 8, 4), choose("all_reduce", 4, 1 << 20, 4), choose("all_reduce", 16, 1 << 14, 4)
    ('naive', 'direct', 'parameter_server')
    """
    return _chosen(collective, ranks, size_bytes, cores)[0]


def rule(collective: str, ranks: int, size_bytes: int, cores: int) -> str:
    """Why, in words.

    >>> rule("all_reduce", 4, 8, 4)
    'each rank reads at most 28KiB of all others together, so one round is faster than two'
    """
    return _chosen(collective, ranks, size_bytes, cores)[1]


def _chosen(collective: str, ranks: int, size_bytes: int, cores: int) -> tuple[str, str]:
    row = next((row for row in TABLE if row.fits(collective, ranks, size_bytes, cores)), None)
    return ("direct", _WHY_DIRECT) if row is None else (row.algorithm, row.why)
