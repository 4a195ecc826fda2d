"""The one conformance test: every algorithm of every collective, on real processes, on awkward lengths.

Data depends on rank and position; every element of every rank is compared with what NumPy computes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farandole.algorithms import REGISTRY
from farandole.collectives import COLLECTIVES
from farandole.run.engine import STREAM_FROM_BYTES
from farandole.run.spawn import spawn
from farandole.run.start import CACHES

RANKS_PY = str(Path(__file__).with_name("conformance_ranks.py"))
LONG_BYTES = 8000  # more than a small set has
SIZES = (*range(1, 10), 13, 17)


def _cases(ranks: int) -> list[dict[str, Any]]:
    lengths = sorted({0, 1, ranks - 1, ranks, ranks + 1, 2 * ranks - 1, 997} if ranks < 10 else {1, ranks + 1, 997})
    return [
        {"collective": collective, "algorithm": name, "root": root, "length": length}
        for collective, name in sorted(REGISTRY)
        for root in (sorted({0, ranks - 1}) if COLLECTIVES[collective].rooted else [0])
        for length in ([0] if collective == "barrier" else lengths)
    ]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("ranks", SIZES)
def test_every_algorithm_gives_what_numpy_computes(ranks: int) -> None:
    wrong = spawn(ranks, f"{RANKS_PY}:check", {"cases": _cases(ranks), "dtype": "float32", "op": "sum"}, timeout_s=150)
    assert wrong == [[]] * ranks


@pytest.fixture(params=["shared", "apart"])
def caches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How ranks write what others will read: as usual, or past the caches."""
    monkeypatch.setenv(CACHES, request.param)
    return str(request.param)


@pytest.mark.parametrize("ranks", [3, 4])
@pytest.mark.usefixtures("caches")
def test_messages_longer_than_a_slot_go_through_it_in_slices(ranks: int) -> None:
    cases = [{**case, "length": length} for case in _cases(ranks) if case["length"] == 997 for length in (4999, 65537)]
    arguments = {"cases": cases, "dtype": "int32", "op": "sum", "slot_bytes": 16384}
    assert spawn(ranks, f"{RANKS_PY}:check", arguments, timeout_s=50) == [[]] * ranks


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "avg", "band", "bor", "bxor"])
def test_every_op_on_every_dtype(op: str, caches: str) -> None:
    sizes = {"min_bytes": 1000 if caches == "shared" else LONG_BYTES}
    assert spawn(3, f"{RANKS_PY}:check_dtypes", {"op": op, **sizes}, timeout_s=50) == [[]] * 3


@pytest.mark.timeout(120)
@pytest.mark.parametrize("op", ["sum", "avg"])
@pytest.mark.usefixtures("caches")
def test_results_that_no_cache_holds_on_every_dtype(op: str) -> None:
    assert spawn(3, f"{RANKS_PY}:check_dtypes", {"op": op, "min_bytes": STREAM_FROM_BYTES}, timeout_s=100) == [[]] * 3


def test_all_ranks_end_with_the_same_bits_whatever_the_algorithm() -> None:
    for ranks in (3, 5, 8):
        digests = spawn(ranks, f"{RANKS_PY}:digests", timeout_s=50)
        assert all(digest == digests[0] for digest in digests)
        assert len(digests[0]) == len([name for collective, name in REGISTRY if collective == "all_reduce"]) * 2


@pytest.mark.parametrize("ranks", [3, 6])
@pytest.mark.usefixtures("caches")
def test_the_native_and_the_reference_engine_give_the_same_bits(ranks: int) -> None:
    assert spawn(ranks, f"{RANKS_PY}:differs_from_reference", timeout_s=50) == [[]] * ranks


def test_sixteen_bit_floats_are_summed_in_float32_and_rounded_once() -> None:
    names = [name for collective, name in REGISTRY if collective == "all_reduce"]
    # 256 + 7 is 263; in bfloat16 that is 264, and 256 if one rounds after every addition.
    assert spawn(8, f"{RANKS_PY}:sum_of_bfloat16", {"names": names}, timeout_s=50) == [dict.fromkeys(names, 264.0)] * 8
