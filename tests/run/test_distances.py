"""Ranks find out how long their cores take to read what another one has written."""

from __future__ import annotations

from pathlib import Path

import pytest

import farandole
from farandole.errors import UsageError
from farandole.run.spawn import spawn
from farandole.run.start import CACHES

RANKS_PY = str(Path(__file__).with_name("distance_ranks.py"))
LONG_BYTES, LONGER_BYTES, SHORT_BYTES = 64 << 10, 256 << 10, 64
A_SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(("calls", "size_bytes"), [(900, LONGER_BYTES), (4800, LONG_BYTES)])
def test_each_rank_knows_the_others_after_some_longer_calls(calls: int, size_bytes: int) -> None:
    found = spawn(3, f"{RANKS_PY}:distances", {"calls": calls, "size_bytes": size_bytes}, timeout_s=50)
    for rank, distances in enumerate(found):
        assert distances[rank] == 0
        assert all(0 < ns < A_SECOND_NS for other, ns in enumerate(distances) if other != rank)


@pytest.mark.parametrize(("caches", "passes"), [("apart", True), ("shared", False)])
def test_what_the_environment_says_counts(caches: str, passes: bool) -> None:
    arguments = {"calls": 10, "size_bytes": LONGER_BYTES, "said": [caches, caches]}
    assert [each for _, each in spawn(2, f"{RANKS_PY}:broadcasts", arguments, timeout_s=50)] == [passes] * 2


@pytest.mark.parametrize(("caches", "passes"), [("apart", True), ("shared", False)])
def test_a_rank_that_reads_nothing_goes_by_what_the_others_have(caches: str, passes: bool) -> None:
    arguments = {"calls": 10, "size_bytes": LONGER_BYTES, "said": ["", caches]}
    (knows, root), (_, reader) = spawn(2, f"{RANKS_PY}:broadcasts", arguments, timeout_s=50)
    assert (knows, root, reader) == (False, passes, passes)


def test_short_calls_do_not_find_out() -> None:
    arguments = {"calls": 20, "size_bytes": SHORT_BYTES}
    assert spawn(2, f"{RANKS_PY}:distances", arguments, timeout_s=50) == [[0, 0]] * 2


def test_one_rank_has_no_others() -> None:
    with farandole.init(environ={}) as communicator:
        assert communicator.distances_ns() == [0]


def test_a_value_that_says_nothing_is_an_error() -> None:
    alone = {"FARANDOLE_RANK": "0", "FARANDOLE_WORLD_SIZE": "2", "FARANDOLE_RENDEZVOUS": "never met"}
    with pytest.raises(UsageError, match="FARANDOLE_CACHES must be shared or apart, or not set, not 'near'"):
        farandole.init(environ={**alone, CACHES: "near"})
