"""The analysis of what happens before what, against every interleaving of small random programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.accesses import Pairs, conflicts
from farandole.algorithms import build
from farandole.lower import lower
from farandole.program import Instruction, Op, Program, program_of
from farandole.verify import smallest_safe_depth
from farandole.verify.clocks import unordered
from farandole.verify.happens_before import Run, edges, run
from farandole.verify.traffic import traffic
from naive import SENDING, Machine, Where, explore, races_by_exploring, races_by_reaching, steps_of
from strategies import tiny_programs

DEPTHS = st.sampled_from([0, 1, 2, None])


def _run(program: Program, depth: int | None) -> Run:
    return run(edges(program, traffic(program), depth))


def _places(program: Program, pairs: Pairs) -> set[frozenset[Where]]:
    return {
        frozenset((program.position(a), program.position(b)))
        for a, b in zip(pairs.earlier.tolist(), pairs.later.tolist(), strict=True)
    }


def _races(program: Program, depth: int | None) -> set[frozenset[Where]]:
    done = _run(program, depth)
    return _places(program, unordered(program, done, conflicts(program, done.turn)))


def _lanes(pairs: set[frozenset[Where]]) -> set[frozenset[tuple[int, int]]]:
    return {frozenset(where[:2] for where in pair) for pair in pairs}


@settings(max_examples=120, deadline=None)
@given(tiny_programs(), DEPTHS)
def test_one_run_gets_as_far_as_every_interleaving_does(program: Program, depth: int | None) -> None:
    _, ends, _ = explore(program.lanes(), depth)
    assert len(ends) == 1
    (end,) = ends
    done = _run(program, depth)
    ran = Counter(program.position(i)[:2] for i in range(len(program.steps)) if done.level[i] >= 0)
    assert [[ran[rank, lane] for lane in range(len(counts))] for rank, counts in enumerate(end)] == [*map(list, end)]


@settings(max_examples=120, deadline=None)
@given(tiny_programs(), DEPTHS)
def test_races_are_the_conflicts_that_interleavings_order_differently(program: Program, depth: int | None) -> None:
    if _run(program, depth).is_complete:
        expected, found = races_by_exploring(program.lanes(), depth), _races(program, depth)
        assert found <= expected
        # Of the steps of one lane that race with the same step, the latest before it stands for all.
        assert _lanes(found) == _lanes(expected)


@settings(max_examples=120, deadline=None)
@given(tiny_programs())
def test_the_smallest_safe_depth_is_the_first_at_which_everything_runs(program: Program) -> None:
    lanes = program.lanes()
    queues = Counter((where[0], step.send_to) for where, step in steps_of(lanes) if step.op in SENDING)
    depths = [*range(max(queues.values(), default=0) + 2), None]
    runs = [sum(map(len, Machine(lanes, depth).run())) == len(program.steps) for depth in depths]
    assert runs == sorted(runs), "a greater depth must never be worse"
    assert smallest_safe_depth(program) == (depths[runs.index(True)] if runs[-1] else None)


@pytest.mark.parametrize("name", ["ring", "direct", "double_tree", "halving_doubling", "naive"])
def test_clocks_agree_with_plain_reachability_when_all_waits_are_gone(name: str) -> None:
    program = lower(build("all_reduce", name, 5), "sendrecv")
    lanes = [[[replace(step, waits=()) for step in lane] for lane in of_rank] for of_rank in program.lanes()]
    bare = program_of("all_reduce", lanes, program.chunks, scratch=program.cells - program.chunks)
    expected, found = races_by_reaching(lanes), _races(bare, None)
    assert found
    assert found <= expected
    assert _lanes(found) == _lanes(expected)
    assert _races(program, None) == races_by_reaching(program.lanes()) == set()


def test_a_full_queue_orders_what_an_endless_one_does_not() -> None:
    """Rank 1 reads cell 2, then takes the first message; at depth 1, only then can rank 0 get to the last one."""
    sends = [Instruction(Op.SEND, read=0, send_to=1, channel=channel) for channel in (0, 0, 1)]
    takes = [Instruction(Op.RECV, write=0, receive_from=0)] * 2
    first = [Instruction(Op.COPY, read=2, write=1), *takes]
    second = [Instruction(Op.RECV, write=2, receive_from=0, channel=1)]
    program = program_of("all_reduce", [[sends], [first, second]], 1, scratch=2)
    race = {frozenset({(1, 0, 0), (1, 1, 0)})}
    assert _races(program, 1) == races_by_exploring(program.lanes(), 1) == set()
    assert _races(program, 2) == races_by_exploring(program.lanes(), 2) == race
    assert _races(program, None) == races_by_exploring(program.lanes(), None) == race


def test_what_completes_together_is_not_ordered() -> None:
    """At depth 0, a rank's message goes round and comes back while it is still being sent."""
    there = [Instruction(Op.SEND, read=0, send_to=1)]
    back = [Instruction(Op.RECV, write=0, receive_from=1)]
    passes_on = [Instruction(Op.RECV_COPY_SEND, write=0, receive_from=0, send_to=0)]
    program = program_of("all_reduce", [[there, back], [passes_on]], 1)
    race = {frozenset({(0, 0, 0), (0, 1, 0)})}
    assert _races(program, 0) == races_by_exploring(program.lanes(), 0) == race
    assert _races(program, 1) == races_by_exploring(program.lanes(), 1) == set()
