from __future__ import annotations

import itertools

import pytest

from farandole.algorithms import build
from farandole.run.auto import choose
from farandole.run.compile import compile_schedule
from farandole.verify.order import summing_orders

IN_ORDER = [("all_reduce", "naive"), ("all_reduce", "direct"), ("all_reduce", "parameter_server"), ("reduce", "direct")]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 8])
@pytest.mark.parametrize(("collective", "name"), [*IN_ORDER, ("reduce_scatter", "direct")])
def test_algorithms_that_add_up_in_the_order_of_the_ranks(collective: str, name: str, ranks: int) -> None:
    orders = summing_orders(compile_schedule(build(collective, name, ranks)))
    assert orders == {tuple(range(ranks)) if ranks > 1 else 0}


@pytest.mark.parametrize("size_bytes", [4, 1 << 10, 1 << 14, 1 << 15, 1 << 20, 1 << 30])
@pytest.mark.parametrize("collective", ["all_reduce", "reduce", "reduce_scatter"])
def test_the_built_in_rule_takes_no_others(collective: str, size_bytes: int) -> None:
    for ranks, cores in itertools.product((2, 4, 9), (1, 2, 4, 16)):
        programs = compile_schedule(build(collective, choose(collective, ranks, size_bytes, cores), ranks))
        assert summing_orders(programs) == {tuple(range(ranks))}


def test_the_ring_adds_up_each_chunk_in_an_order_of_its_own() -> None:
    assert len(summing_orders(compile_schedule(build("all_reduce", "ring", 6)))) == 6


def test_a_tree_has_one_order_which_is_not_that_of_the_ranks() -> None:
    assert summing_orders(compile_schedule(build("all_reduce", "recursive_doubling", 4))) == {(0, 1, (2, 3))}
