"""What is proven is right and what is right is proven: changed programs, against a slow twin of the proof."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.algorithms import build
from farandole.errors import ScheduleError
from farandole.lower import lower
from farandole.program import Instruction, Op, Program
from farandole.verify import verify_program, verify_schedule
from naive import program_gives_right_values, program_is_right, races_by_reaching, steps_of
from strategies import KEYS, Mutant, mutants, program_mutants, programs, with_lanes


@settings(max_examples=150, deadline=None)
@given(program_mutants())
def test_a_changed_program_is_rejected_exactly_when_it_is_wrong(program: Program) -> None:
    assert verify_program(program).ok == program_is_right(program)


@settings(max_examples=60, deadline=None)
@given(program_mutants(), st.integers(0, 99))
def test_a_changed_program_that_is_accepted_gives_the_right_values_in_any_order(program: Program, seed: int) -> None:
    if verify_program(program).ok:
        assert program_gives_right_values(program, seed)


@settings(max_examples=60, deadline=None)
@given(mutants(largest=5), st.sampled_from(["send-first", "sendrecv"]), st.booleans())
def test_a_wrong_schedule_becomes_a_wrong_program_and_a_right_one_a_right_one(
    mutant: Mutant, order: str, fuse: bool
) -> None:
    schedule_is_proven = verify_schedule(mutant.schedule).ok
    try:
        program = lower(mutant.schedule, order, fuse)
    except ScheduleError:
        assert not schedule_is_proven
        return
    program_is_proven = verify_program(program).ok
    assert program_is_proven == program_is_right(program)
    assert program_is_proven or not schedule_is_proven
    assert program_gives_right_values(program) or not program_is_proven


@settings(max_examples=40, deadline=None)
@given(programs(largest=6, orders=("send-first", "sendrecv")))
def test_no_program_of_an_algorithm_is_rejected(program: Program) -> None:
    assert verify_program(program).problems == ()


@pytest.mark.parametrize(("collective", "name"), KEYS)
@pytest.mark.parametrize("fuse", [False, True])
def test_every_program_without_one_needed_wait_is_rejected_for_its_race(collective: str, name: str, fuse: bool) -> None:
    """A wait is needed where, without it, no chain of lanes, waits and messages orders a pair that conflicts."""
    program = lower(build(collective, name, 3, 1), "sendrecv", fuse)
    for (rank, lane, number), step in steps_of(program.lanes()):
        for gone in step.waits:
            lanes = program.lanes()
            lanes[rank][lane][number] = replace(step, waits=tuple(wait for wait in step.waits if wait != gone))
            problems = verify_program(with_lanes(program, lanes)).problems
            is_needed = bool(races_by_reaching(lanes))
            assert ({problem.rule for problem in problems} >= {"race"}) == is_needed
            assert bool(problems) == is_needed


@pytest.mark.parametrize("name", ["ring", "recursive_doubling", "naive", "direct", "double_tree"])
def test_there_are_waits_to_lose(name: str) -> None:
    """Or the test above would prove nothing."""
    program = lower(build("all_reduce", name, 4), "sendrecv")
    needed = 0
    for (rank, lane, number), step in steps_of(program.lanes()):
        lanes = program.lanes()
        lanes[rank][lane][number] = replace(step, waits=())
        needed += bool(step.waits) and not verify_program(with_lanes(program, lanes)).ok
    assert needed >= 4


@pytest.mark.parametrize(("collective", "name"), KEYS)
def test_a_step_that_is_left_out_is_missed(collective: str, name: str) -> None:
    program = lower(build(collective, name, 3, 1), "sendrecv")
    for (rank, lane, number), step in steps_of(program.lanes()):
        lanes = program.lanes()
        lanes[rank][lane][number] = Instruction(Op.NOP, waits=step.waits)
        assert not verify_program(with_lanes(program, lanes)).ok
