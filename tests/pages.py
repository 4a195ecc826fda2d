"""What the tests of pages have in common: schedules, right and broken, and the data in a page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from farandole.algorithms import REGISTRY, build
from farandole.schedule import Round, Schedule


def data_of(html: str) -> dict[str, Any]:
    """The JSON in a page."""
    found = re.search(r'<script type="application/json" id="farandole-data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    value = json.loads(found[1])
    assert isinstance(value, dict)
    return value


def every_algorithm(ranks: int) -> Iterator[Schedule]:
    """The schedule of every algorithm for that many ranks, with a root that is not 0."""
    for collective, name in sorted(REGISTRY):
        yield build(collective, name, ranks, root=1)


def with_chunk(schedule: Schedule, round_: int, place: int, chunk: int) -> Schedule:
    """The same schedule, but one transfer carries another chunk."""
    rounds = list(schedule.rounds)
    old = rounds[round_]
    chunks = old.chunk.copy()
    chunks[place] = chunk
    rounds[round_] = Round(old.src, old.dst, chunks, old.count, old.reduce, old.phase)
    return replace(schedule, rounds=tuple(rounds))


def broken() -> Schedule:
    """Ring all-reduce on 5 ranks, in which rank 3 sends chunk 2 instead of chunk 1 in its second round."""
    return with_chunk(build("all_reduce", "ring", 5), 1, 3, 2)
