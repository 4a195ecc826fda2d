from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from farandole.algorithms import REGISTRY, build
from farandole.run.compile import compile_schedule
from farandole.slots import SlotProgram
from farandole.verify.slots import verify_slots

SIZES = (1, 2, 3, 4, 5, 8, 12)


def _compiled(collective: str, name: str, ranks: int) -> tuple[SlotProgram, ...]:
    return compile_schedule(build(collective, name, ranks))


@pytest.mark.parametrize(("collective", "name"), sorted(REGISTRY))
def test_what_every_algorithm_compiles_to_is_right_whatever_the_timing(collective: str, name: str) -> None:
    for ranks in SIZES:
        schedule = build(collective, name, ranks, root=ranks - 1)
        assert verify_slots(schedule, compile_schedule(schedule)).problems == ()


def _without_wait(programs: Sequence[SlotProgram], rank: int, stage: int, peer: int) -> list[SlotProgram]:
    waits = list(programs[rank].waits)
    waits[stage] = tuple(p for p in waits[stage] if p != peer)
    return [replace(p, waits=tuple(waits)) if p.rank == rank else p for p in programs]


@pytest.mark.parametrize(("collective", "name"), sorted(key for key in REGISTRY if key[0] != "barrier"))
def test_every_wait_is_needed(collective: str, name: str) -> None:
    schedule = build(collective, name, 5)
    programs = compile_schedule(schedule)
    for program in programs:
        for stage, peers in enumerate(program.waits):
            for peer in peers:
                report = verify_slots(schedule, _without_wait(programs, program.rank, stage, peer))
                assert "race" in {problem.rule for problem in report.problems}, (program.rank, stage, peer)


@pytest.mark.parametrize("name", ["ring", "direct", "tree", "hierarchical", "recursive_doubling"])
def test_every_step_is_needed(name: str) -> None:
    schedule = build("all_reduce", name, 4)
    programs = compile_schedule(schedule)
    for program in programs:
        for i in range(len(program.steps)):
            fewer = replace(program, steps=program.steps[:i] + program.steps[i + 1 :])
            broken = [fewer if p is program else p for p in programs]
            assert not verify_slots(schedule, broken).ok, (program.rank, i)


def test_a_wait_for_a_stage_that_is_never_announced_is_found() -> None:
    schedule = build("all_reduce", "ring", 3)
    programs = list(compile_schedule(schedule))
    programs[1] = replace(programs[1], announces=(False, *programs[1].announces[1:]))
    problems = verify_slots(schedule, programs).problems
    assert [(p.rule, p.rank, p.round) for p in problems] == [("unannounced", 2, 1)]


def test_a_place_that_is_written_again_while_others_may_read_it_is_found() -> None:
    schedule = build("all_reduce", "recursive_doubling", 4)
    programs = list(compile_schedule(schedule))
    steps = tuple(replace(s, place=0 if s.place >= 0 else -1) for s in programs[0].steps)
    programs[0] = replace(programs[0], steps=steps)
    assert "rewritten" in {p.rule for p in verify_slots(schedule, programs).problems}


def test_a_partial_value_that_is_taken_for_a_finished_one_is_found() -> None:
    schedule = build("all_reduce", "ring", 3)
    programs = list(compile_schedule(schedule))
    steps = tuple(replace(s, is_partial=False) for s in programs[0].steps)
    programs[0] = replace(programs[0], steps=steps)
    assert "wrong" in {p.rule for p in verify_slots(schedule, programs).problems}
