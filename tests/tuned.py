"""Profiles for tests, as if they had been measured on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from farandole.run.auto import choose
from farandole.run.machine import Machine, this_machine
from farandole.run.profile import Measured, Point, Profile, Table

Tables = Mapping[tuple[str, int], Mapping[int, str]]


def point(size_bytes: int, algorithm: str, default: str = "direct") -> Point:
    """A size for which ``algorithm`` was the fastest, before another and the default."""
    names = dict.fromkeys([algorithm, "tree", default])
    rows = [Measured(name, k * 1e-5, k * 0.9e-5, k * 1.2e-5, 15) for k, name in enumerate(names, 1)]
    return Point(size_bytes, algorithm, default, tuple(rows))


def profile_of(tables: Tables, machine: Machine | None = None) -> Profile:
    """A profile with these algorithms, by (collective, ranks) and size."""
    where = machine or this_machine()
    made = [
        Table(name, n, tuple(point(s, best, choose(name, n, s, where.cores)) for s, best in sizes.items()))
        for (name, n), sizes in sorted(tables.items())
    ]
    return Profile(where, tuple(made))
