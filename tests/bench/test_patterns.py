from __future__ import annotations

import numpy as np
import pytest

from farandole.bench import patterns
from farandole.bench.data import PERIOD, expected, input_length, values
from farandole.errors import UnknownNameError

LENGTHS = [0, 1, 2, 7, PERIOD - 1, PERIOD, 2 * PERIOD + 5]


@pytest.mark.parametrize("collective", patterns.COLLECTIVES)
@pytest.mark.parametrize("length", LENGTHS)
def test_inputs_and_results_are_those_of_the_definition(collective: str, length: int) -> None:
    for rank in range(3):
        plain = values(rank, input_length(collective, 3, rank, length, 0), "float32", "sum")
        assert np.array_equal(patterns.given(collective, 3, rank, length, "float32"), plain)
        result = expected(collective, 3, rank, length, dtype="float32", op="sum")
        assert result is not None
        assert patterns.is_right(result, collective, 3, rank, length)
        assert patterns.empty(collective, 3, rank, length, "float32").shape == result.shape


@pytest.mark.parametrize("collective", patterns.COLLECTIVES)
@pytest.mark.parametrize("length", [7, PERIOD, 2 * PERIOD + 5])
def test_one_wrong_element_anywhere_is_found(collective: str, length: int) -> None:
    right = expected(collective, 3, 1, length, dtype="int32", op="sum")
    assert right is not None
    for position in {0, len(right) // 2, len(right) - 1}:
        wrong = right.copy()
        wrong[position] += 1
        assert not patterns.is_right(wrong, collective, 3, 1, length)


@pytest.mark.parametrize("collective", patterns.COLLECTIVES)
def test_a_result_that_was_never_written_is_wrong(collective: str) -> None:
    assert not patterns.is_right(patterns.empty(collective, 3, 1, 20, "float32"), collective, 3, 1, 20)


def test_parts_in_the_wrong_order_are_wrong() -> None:
    right = expected("all_gather", 2, 0, 2 * PERIOD, dtype="float32", op="sum")
    assert right is not None
    assert not patterns.is_right(np.roll(right, PERIOD), "all_gather", 2, 0, 2 * PERIOD)


def test_an_unknown_collective_is_named() -> None:
    with pytest.raises(UnknownNameError) as caught:
        patterns.is_right(np.zeros(3), "barrier", 1, 0, 3)
    assert caught.value.facts["name"] == "barrier"
