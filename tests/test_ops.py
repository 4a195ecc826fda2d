from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.errors import UnknownNameError, UnsupportedError
from farandole.ops import DTYPES, OPS, check_reduction, dtype_of, find_dtype, find_op, ops_for

torch = pytest.importorskip("torch")


def test_every_kind_says_which_reductions_it_has() -> None:
    table = {kind: ops_for(next(d for d in DTYPES.values() if d.kind == kind)) for kind in ("bool", "integer")}
    assert table == {
        "bool": ["sum", "prod", "min", "max", "band", "bor", "bxor"],
        "integer": ["sum", "prod", "min", "max", "avg", "band", "bor", "bxor"],
    }
    assert ops_for(DTYPES["bfloat16"]) == ["sum", "prod", "min", "max", "avg"]
    assert ops_for(DTYPES["complex128"]) == ["sum", "prod", "avg"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_what_goes_together_combines_and_the_rest_is_refused(op: str, dtype: str) -> None:
    kind, operation = find_dtype(dtype), find_op(op)
    one = np.ones(3, kind.accumulator)
    if op in ops_for(kind):
        check_reduction(operation, kind)
        combined = operation.finish(operation.combine(one.copy(), one), 2)
        assert combined.dtype == kind.accumulator
    else:
        with pytest.raises(UnsupportedError) as info:
            check_reduction(operation, kind)
        assert info.value.facts == {"op": op, "dtype": dtype, "supported": tuple(ops_for(kind))}


def test_the_dtype_of_an_array_is_found_in_either_byte_order() -> None:
    assert dtype_of(np.zeros(2, ">f4")) is dtype_of(np.zeros(2, "<f4")) is DTYPES["float32"]
    with pytest.raises(UnsupportedError, match=r"an array of dtype datetime64\[s\] cannot be communicated"):
        dtype_of(np.array(["2020-01-01"], "datetime64[s]"))


def test_unknown_names_say_what_is_near() -> None:
    with pytest.raises(UnknownNameError, match="no dtype is called 'float33'; did you mean 'float32'"):
        find_dtype("float33")
    with pytest.raises(UnknownNameError, match="no reduction is called 'average'"):
        find_op("average")


def test_nan_wins_wherever_it_stands() -> None:
    nan, one = np.array([np.nan, 1.0]), np.array([1.0, np.nan])
    for op in ("min", "max"):
        assert np.isnan(find_op(op).combine(nan.copy(), one)).all()


def test_integers_wrap_around_and_booleans_are_logical() -> None:
    assert find_op("sum").combine(np.array([127], np.int8), np.array([2], np.int8)).tolist() == [-127]
    assert find_op("sum").combine(np.array([True, True]), np.array([True, False])).tolist() == [True, True]
    assert find_op("prod").combine(np.array([True, True]), np.array([True, False])).tolist() == [True, False]


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1), st.integers(1, 300))
def test_an_average_of_integers_is_cut_off_towards_zero(values: list[int], ranks: int) -> None:
    got = find_op("avg").finish(np.array(values), ranks).tolist()
    assert got == [abs(value) // ranks * (1 if value >= 0 else -1) for value in values]


def test_an_average_of_small_integers_may_be_over_many_ranks() -> None:
    assert find_op("avg").finish(np.array([-128, 127], np.int8), 200).tolist() == [0, 0]
    assert find_op("avg").finish(np.array([255, 7], np.uint8), 2).tolist() == [127, 3]


@given(st.lists(st.floats(width=32), min_size=1))
def test_bfloat16_is_rounded_as_torch_rounds_it(values: list[float]) -> None:
    kind = DTYPES["bfloat16"]
    wide = np.array(values, np.float32)
    stored = kind.narrow(wide)
    theirs = torch.from_numpy(wide).to(torch.bfloat16)
    ours = torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16)
    assert torch.equal(torch.isnan(theirs), torch.isnan(ours))
    assert torch.equal(torch.nan_to_num(theirs), torch.nan_to_num(ours))
    assert np.array_equal(kind.widen(stored), ours.to(torch.float32).numpy(), equal_nan=True)


def test_widening_is_exact_and_narrowing_overflows_to_infinity() -> None:
    bits = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    for name in ("bfloat16", "float16"):
        kind = DTYPES[name]
        stored = bits.view(kind.storage)
        back = kind.narrow(kind.widen(stored)).view(np.uint16)
        assert np.array_equal(back[np.isfinite(kind.widen(stored))], bits[np.isfinite(kind.widen(stored))])
        assert np.isinf(kind.widen(kind.narrow(np.array([3.4e38], np.float32)))).all()
