from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from definitions import inputs_for, lengths, outputs_for, same
from farandole.algorithms import REGISTRY, build
from farandole.errors import LengthError, ScheduleError, UnknownNameError, UnsupportedError, UsageError
from farandole.run import reference
from farandole.schedule import Round, Schedule

ALGORITHMS = sorted(REGISTRY)
REDUCING = [key for key in ALGORITHMS if key[0] in ("all_reduce", "reduce", "reduce_scatter")]


@pytest.mark.parametrize(("collective", "name"), ALGORITHMS)
@pytest.mark.parametrize("ranks", range(1, 18))
def test_every_algorithm_gives_what_its_collective_means(collective: str, name: str, ranks: int) -> None:
    root = ranks // 2
    schedule = build(collective, name, ranks, root)
    for length in lengths(ranks):
        inputs = inputs_for(collective, ranks, root, length)
        assert same(reference.execute(schedule, inputs), outputs_for(collective, inputs, root)), length


@pytest.mark.parametrize(("collective", "name"), REDUCING)
@pytest.mark.parametrize("op", ["prod", "min", "max"])
def test_every_reduction_is_the_one_asked_for(collective: str, name: str, op: str) -> None:
    inputs = inputs_for(collective, 5, 3, 23)
    got = reference.execute(build(collective, name, 5, 3), inputs, op)
    assert same(got, outputs_for(collective, inputs, 3, op))


@pytest.mark.parametrize("name", [name for collective, name in ALGORITHMS if collective == "all_reduce"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("ranks", [2, 5, 8, 13])
def test_all_ranks_end_with_the_same_bits(name: str, dtype: str, ranks: int) -> None:
    random = np.random.default_rng(ranks)
    inputs = [random.lognormal(0, 1.5, 101).astype(dtype) for _ in range(ranks)]
    outputs = reference.all_reduce(inputs, algorithm=name)
    assert {output.tobytes() for output in outputs} == {outputs[0].tobytes()}
    exact = np.sum([array.astype(np.longdouble) for array in inputs], axis=0)
    # Every one of the ranks - 1 additions rounds by half a unit in the last place at most, all values are positive.
    assert np.all(np.abs(outputs[0] - exact) <= ranks * np.finfo(dtype).eps * exact)


def test_64_ranks_of_a_ring_with_uneven_chunks_are_exact() -> None:
    inputs = [np.arange(1000) * (rank + 1) for rank in range(64)]
    outputs = reference.all_reduce(inputs, algorithm="ring")
    assert all(np.array_equal(output, np.arange(1000) * 2080) for output in outputs)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_blocks_of_uneven_lengths_come_out_whole(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(1, 6))
    counts = np.array(data.draw(st.lists(st.integers(0, 5), min_size=ranks, max_size=ranks)))
    root = data.draw(st.integers(0, ranks - 1))
    bounds = np.concatenate([[0], np.cumsum(counts)])
    whole = np.arange(counts.sum()) + 1
    blocks = [whole[a:b] for a, b in pairwise(bounds)]
    for name in ("ring", "direct", "bruck", "doubling", "bidirectional_ring"):
        assert all(np.array_equal(got, whole) for got in reference.all_gather(blocks, name))
    for name in ("direct", "binomial"):
        assert np.array_equal(reference.gather(blocks, root, name), whole)
        scattered = reference.scatter(whole, ranks, counts, root, name)
        assert all(np.array_equal(got, block) for got, block in zip(scattered, blocks, strict=True))
    for name in ("ring", "direct", "halving", "bidirectional_ring"):
        reduced = reference.reduce_scatter([whole * (r + 1) for r in range(ranks)], counts=counts, algorithm=name)
        factor = ranks * (ranks + 1) // 2
        assert all(np.array_equal(got, block * factor) for got, block in zip(reduced, blocks, strict=True))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_all_to_all_transposes_blocks_of_any_lengths(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(1, 5))
    counts = np.array(data.draw(st.lists(st.integers(0, 4), min_size=ranks**2, max_size=ranks**2))).reshape(ranks, -1)
    blocks = [[np.arange(counts[s, d]) + 100 * s + 10 * d for d in range(ranks)] for s in range(ranks)]
    inputs = [np.concatenate(row) for row in blocks]
    for name in ("direct", "pairwise", "bruck"):
        outputs = reference.all_to_all(inputs, counts, name)
        for rank, output in enumerate(outputs):
            assert np.array_equal(output, np.concatenate([row[rank] for row in blocks]))


def test_a_whole_buffer_keeps_its_shape_and_the_inputs_are_left_alone() -> None:
    inputs = [np.arange(6.0).reshape(2, 3) * (rank + 1) for rank in range(3)]
    outputs = reference.all_reduce(inputs, algorithm="ring")
    assert [output.shape for output in outputs] == [(2, 3)] * 3
    assert np.array_equal(inputs[1], np.arange(6.0).reshape(2, 3) * 2)
    assert not any(np.shares_memory(output, array) for output in outputs for array in inputs)


def test_blocks_are_cut_along_the_first_axis() -> None:
    table = np.arange(10).reshape(5, 2)
    assert [block.tolist() for block in reference.scatter(table, 3)] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9]]]
    assert np.array_equal(reference.all_gather([table[:1], table[1:1], table[1:]])[2], table)
    assert reference.reduce_scatter([table, table * 10], counts=[1, 4])[0].tolist() == [[0, 11]]
    assert [block.shape for block in reference.scatter(np.zeros((5, 0, 2)), 3)] == [(2, 0, 2), (2, 0, 2), (1, 0, 2)]
    with pytest.raises(LengthError, match="all ranks of one all_gather have one shape but for the first axis"):
        reference.all_gather([table, table.T])


def test_numbers_are_arrays_without_axes() -> None:
    assert reference.all_reduce([1, 2, 3, 4]) == [10, 10, 10, 10]
    assert reference.all_reduce([1, 2])[0].shape == ()


def test_strided_and_foreign_byte_order_arrays_are_understood() -> None:
    strided = np.arange(12)[::3]
    foreign = np.arange(4).astype(">i8")
    outputs = reference.all_reduce([strided, foreign])
    assert outputs[0].tolist() == [0, 4, 8, 12]
    assert outputs[0].dtype.isnative


@pytest.mark.parametrize("length", [1, 40, 41, 1000, 4099])
@pytest.mark.parametrize(
    ("collective", "name"), [("all_reduce", "ring"), ("reduce_scatter", "halving"), ("all_to_all", "bruck")]
)
def test_slices_do_not_change_the_result(collective: str, name: str, length: int) -> None:
    inputs = inputs_for(collective, 4, 0, length)
    schedule = build(collective, name, 4)
    sliced = reference.execute(schedule, inputs, longest_chunk=16)
    assert same(sliced, outputs_for(collective, inputs, 0))


def test_operands_are_folded_in_the_order_of_their_ranks() -> None:
    big, one = np.float32(2.0**24), np.float32(1)
    schedule = Schedule("reduce", 3, 1, (Round(src=[2, 1], dst=0, reduce=True),))
    assert reference.execute(schedule, [big, one, one])[0] == big  # (big + 1) + 1, each lost
    assert reference.execute(schedule, [one, one, big])[0] == big + 2  # (1 + 1) + big
    at_two = Schedule("reduce", 3, 1, (Round(src=[1, 0], dst=2, reduce=True),), root=2)
    assert reference.execute(at_two, [one, one, big])[2] == big + 2  # the receiver's own value comes last


def test_transfers_carry_what_the_sender_held_before_the_round() -> None:
    swap = Schedule("broadcast", 3, 1, (Round([0, 0], [1, 2]), Round([1, 2, 0], [2, 0, 1])))
    assert [output.tolist() for output in reference.execute(swap, [[7], None, None]) if output is not None] == [[7]] * 3
    both_ways = Schedule("all_reduce", 2, 1, (Round([0, 1], [1, 0], reduce=True),))
    assert reference.execute(both_ways, [5, 6]) == [11, 11]
    shifted = Schedule("all_reduce", 2, 1, (Round([0, 1], [1, 0]),))  # wrong, but its outcome is defined
    assert reference.execute(shifted, [5, 6]) == [6, 5]


@pytest.mark.parametrize("name", [name for collective, name in ALGORITHMS if collective == "all_reduce"])
def test_16_bit_floats_are_rounded_once_when_the_sum_is_complete(name: str) -> None:
    inputs = np.array([2048, 1, 1, 1], np.float16)  # 2048 + 1 is 2048 in float16, and 2051 rounds to 2052
    assert reference.all_reduce([np.full(9, value) for value in inputs], algorithm=name)[0].tolist() == [2052] * 9


@pytest.mark.parametrize("name", [name for collective, name in ALGORITHMS if collective == "all_reduce"])
def test_an_average_is_divided_once_and_whole_numbers_are_cut_off_towards_zero(name: str) -> None:
    whole = reference.all_reduce([np.array([-3, 5, 2**62]), np.array([-4, 6, 2**62 - 1])] * 2, "avg", name)
    assert whole[3].tolist() == [-3, 5, -1 // 4 + 1]  # the sum of the last wraps around to -2
    halves = reference.all_reduce(list(np.array([[1000], [1001], [1003]], np.float16)), "avg", name)
    assert halves[0].tolist() == [1001.5]  # 3004 / 3 is 1001.33, between 1001 and 1001.5
    assert halves[0].dtype == np.float16


@pytest.mark.parametrize(("op", "result"), [("band", 0b1000), ("bor", 0b1111), ("bxor", 0b0101)])
def test_bits_are_combined_one_by_one(op: str, result: int) -> None:
    inputs = np.array([[0b1010], [0b1100], [0b1011], [0b1000]], np.uint8)
    assert reference.all_reduce(list(inputs), op, "ring")[2].tolist() == [result]


def test_bfloat16_is_given_as_its_bits() -> None:
    values = np.array([[1.0, -2.5, 3e38], [2.0, 0.5, 3e38]], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    output = reference.all_reduce(list(bits), dtype="bfloat16")[1]
    assert output.dtype == np.uint16
    assert (output.astype(np.uint32) << 16).view(np.float32).tolist() == [3.0, -2.0, np.inf]


def test_a_copy_keeps_every_bit_of_a_signalling_nan() -> None:
    bits = np.array([0x7F81, 0x7C01], np.uint16)
    schedule = build("broadcast", "direct", 2)
    assert [o.tolist() for o in reference.execute(schedule, [bits, None], dtype="bfloat16") if o is not None] == [
        bits.tolist()
    ] * 2
    halves = reference.broadcast(bits.view(np.float16), 2)
    assert halves[1].view(np.uint16).tolist() == bits.tolist()


def test_a_barrier_has_neither_input_nor_output() -> None:
    assert reference.execute(build("barrier", "dissemination", 5)) == [None] * 5


def _ring(**changes: Any) -> Schedule:
    return Schedule(**{"collective": "all_reduce", "ranks": 2, "chunks": 1, "rounds": (), **changes})


BROKEN = {
    "round 1: transfer 0 is outside a world of 2 ranks and 1 chunks": _ring(rounds=(Round(0, 2, reduce=True),)),
    "round 1: transfer 1 is outside a world of 2 ranks and 1 chunks": _ring(rounds=(Round([0, 1], [1, 0], [0, 1]),)),
    "round 1: rank 1 sends chunk 0, which it does not hold": _ring(collective="broadcast", rounds=(Round(1, 0),)),
    "round 1: rank 1 is to reduce into chunk 0, which it does not hold": _ring(
        collective="broadcast", rounds=(Round(0, 1, reduce=True),)
    ),
    "round 1: chunk 0 of rank 0 is written more than once, and not by reductions only": _ring(
        ranks=3, rounds=(Round([1, 2], 0, reduce=[True, False]),)
    ),
    "at the end, rank 1 does not hold chunk 0": _ring(collective="broadcast"),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_schedule_without_a_defined_outcome_is_refused(message: str) -> None:
    schedule = BROKEN[message]
    inputs = [3 if schedule.collective == "all_reduce" or not rank else None for rank in range(schedule.ranks)]
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}"):
        reference.execute(schedule, inputs)


def test_inputs_that_do_not_fit_are_refused_with_the_facts() -> None:
    with pytest.raises(UsageError, match="takes 3 inputs, one per rank, not 2"):
        reference.execute(build("all_reduce", "ring", 3), [1, 2])
    with pytest.raises(UsageError, match="rank 1 has an input; not None"):
        reference.execute(build("all_reduce", "ring", 2), [1, None])
    with pytest.raises(UsageError, match="rank 1 has no input: pass None, or choose another root"):
        reference.execute(build("broadcast", "direct", 2), [1, 1])
    with pytest.raises(LengthError, match=r"rank 1 has an array of shape \(3,\) and rank 0 of shape \(2,\)") as info:
        reference.all_reduce([[1, 2], [1, 2, 3]])
    assert info.value.facts == {"rank": 1, "expected": (2,), "got": (3,)}
    with pytest.raises(LengthError, match="rank 1 gives 3 rows to this reduce_scatter, but rank 0 has 2"):
        reference.reduce_scatter([[1, 2], [1, 2, 3]])
    with pytest.raises(LengthError, match="rank 0 gives 2 rows to this reduce_scatter, but its counts add up to 3"):
        reference.reduce_scatter([[1, 2], [1, 2]], counts=[1, 2])
    with pytest.raises(LengthError, match=r"of shape \(2,\), at least 0, not \[1, -1\]"):
        reference.scatter([1, 2], 2, counts=[1, -1])
    with pytest.raises(UsageError, match="all_reduce has one block, so it takes no counts"):
        reference.execute(build("all_reduce", "ring", 2), [1, 2], counts=[1, 1])


def test_dtypes_that_do_not_fit_are_refused_with_the_facts() -> None:
    with pytest.raises(UnsupportedError, match="rank 1 has float64 and rank 0 has int64") as info:
        reference.all_reduce([1, 2.0])
    assert info.value.facts == {"rank": 1, "expected": "int64", "got": "float64"}
    with pytest.raises(UnsupportedError, match="dtype object cannot be communicated; supported are bool"):
        reference.all_gather([np.array([None]), np.array([None])])
    rule = "max is for numbers with an order, which complex64 is not; complex64 goes with sum, prod, avg"
    with pytest.raises(UnsupportedError, match=rule):
        reference.all_reduce([np.complex64(1), np.complex64(2)], op="max")
    with pytest.raises(UnsupportedError, match="bfloat16 is stored as uint16, not as float32"):
        reference.all_reduce([np.float32(1), np.float32(2)], dtype="bfloat16")
    with pytest.raises(UnknownNameError, match="no reduction is called 'suum'; did you mean 'sum'"):
        reference.all_reduce([1, 2], op="suum")


def test_a_reduction_that_is_not_needed_is_not_checked() -> None:
    letters: list[NDArray[Any]] = [np.array([1j, 2j]), np.array([3j])]
    assert reference.all_gather(letters)[0].tolist() == [1j, 2j, 3j]
