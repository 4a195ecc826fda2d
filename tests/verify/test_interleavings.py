"""The protocol of the engine in every interleaving; what a removed wait does; and that the proof says the same."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.algorithms import REGISTRY, build
from farandole.run.compile import compile_schedule
from farandole.slots import SlotProgram
from farandole.verify.interleavings import SMALL_IN_A_HALF, Action, ModelCall, actions, explore, explore_actions
from farandole.verify.slots import verify_slots
from farandole.verify.wakeups import lost_wakeups

KEYS = sorted(REGISTRY)
MOVING = [key for key in KEYS if key[0] != "barrier"]
TIMING = {"race", "rewritten", "unwritten"}


@cache
def call(
    collective: str, name: str, ranks: int, slices: int = 1, root: int = 0, *, is_small: bool = False
) -> ModelCall:
    programs = compile_schedule(build(collective, name, ranks, root))
    name = f"{collective} {name} {root} {slices}"
    return ModelCall(name, programs, slices, collective == "barrier", is_small=is_small)


def without(todo: Sequence[Action], rank: int, stage: int) -> list[Action]:
    """The actions, with one wait removed from every slice: for a rank, before a stage."""
    return [replace(a, waits=tuple(w for w in a.waits if w[0] != rank)) if a.stage == stage else a for a in todo]


@pytest.mark.parametrize(("collective", "name"), KEYS)
def test_every_interleaving_of_several_slices_batches_and_calls_is_right(collective: str, name: str) -> None:
    for ranks, slices, batch in ((2, 3, 2), (3, 2, 1), (4, 1, 1)):
        calls = [call(collective, name, ranks, slices), call(collective, name, ranks, 1)]
        found = explore([calls] * ranks, batch=batch)
        assert found.problems == ()
        assert found.ends == {("through",) * ranks}
        assert found.states > 2 * slices * ranks


@pytest.mark.parametrize(("collective", "name"), KEYS)
def test_every_interleaving_of_more_small_calls_than_there_are_sets_is_right(collective: str, name: str) -> None:
    for ranks, others in ((2, 2), (3, 1)):
        small = [call(collective, name, ranks, is_small=True)] * (2 * SMALL_IN_A_HALF + 1)
        large = [call(collective, name, ranks)] * others
        found = explore([[*small, *large, small[0]]] * ranks, batch=1)
        assert found.problems == ()
        assert found.ends == {("through",) * ranks}


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize(("collective", "name"), KEYS)
def test_whoever_dies_or_gives_up_at_any_moment_leaves_nobody_waiting(
    collective: str, name: str, is_small: bool
) -> None:
    calls = [call(collective, name, 3, is_small=is_small), call(collective, name, 3, 2)]
    dying = explore([calls] * 3, batch=1, dies=True)
    assert dying.problems == ()
    assert {end for end in dying.ends if "dead" in end}
    assert all(end.count("dead") <= 1 and set(end) <= {"dead", "gave up", "through"} for end in dying.ends)
    giving_up = explore([calls] * 3, batch=1, gives_up=True)
    assert giving_up.problems == ()
    assert ("gave up",) * 3 in giving_up.ends


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize(("collective", "name"), KEYS)
def test_a_rank_that_makes_another_call_is_found_out_by_all_before_anything_wrong_is_read(
    collective: str, name: str, is_small: bool
) -> None:
    barrier = call("barrier", "dissemination", 3, is_small=is_small)
    key = ("all_gather", "direct") if collective != "all_gather" else ("broadcast", "binomial")
    same, other = call(collective, name, 3, is_small=is_small), call(*key, 3, is_small=is_small)
    odd = zlib.crc32(name.encode()) % 3
    calls = [[barrier, other if r == odd else same, barrier, barrier] for r in range(3)]
    found = explore(calls, batch=1)
    assert found.problems == ()
    assert found.ends == {("gave up",) * 3}


@pytest.mark.parametrize("name", [name for what, name in KEYS if what == "broadcast"])
def test_a_rank_that_makes_another_small_call_is_found_out_although_others_are_ahead(name: str) -> None:
    """Rank 0 only sends, and may have gone on as far as there are sets."""
    same, other = (call("broadcast", name, 3, is_small=True), call("gather", "direct", 3, root=1, is_small=True))
    barrier = call("barrier", "dissemination", 3)
    calls = [[*([same] * 2), other if rank == 1 else same, *([same] * 3), barrier] for rank in range(3)]
    found = explore(calls, batch=1)
    assert found.problems == ()
    assert found.ends == {("gave up",) * 3}


@pytest.mark.parametrize(("collective", "name"), KEYS)
def test_every_wait_of_a_program_that_is_removed_is_missed(collective: str, name: str) -> None:
    calls = [[call(collective, name, 3)]] * 3
    todo = [actions(of_rank, rank, 1) for rank, of_rank in enumerate(calls)]
    rank = zlib.crc32(name.encode()) % 3  # of all ranks: scripts/explore_protocol.py
    for stage, peers in enumerate(calls[0][0].programs[rank].waits):
        for peer in peers:
            broken = [without(t, peer, stage) if r == rank else t for r, t in enumerate(todo)]
            assert explore_actions(calls, broken).problems, (rank, stage, peer)


@pytest.mark.parametrize(("collective", "name"), MOVING)
def test_every_wait_for_the_readers_of_a_half_that_is_removed_is_missed(collective: str, name: str) -> None:
    """After as many calls as there is room for, in which one rank reads from all others, and holds up nobody."""
    reader = zlib.crc32(name.encode()) % 3
    for is_small, before in ((False, 2), (True, 2 * SMALL_IN_A_HALF)):
        gather = call("gather", "direct", 3, root=reader, is_small=is_small)
        last = call(collective, name, 3, root=(reader + 1) % 3, is_small=is_small)
        calls = [[*([gather] * before), last]] * 3
        todo = [actions(of_rank, rank, 1) for rank, of_rank in enumerate(calls)]
        assert explore_actions(calls, todo).problems == ()
        for writer in {0, 1, 2} - {reader}:
            if not any(action.writes for action in todo[writer] if action.call == before and not action.waits):
                continue  # it has nothing to write before it has heard from the reader
            fewer = [replace(a, reuse=tuple(w for w in a.reuse if w[0] != reader)) for a in todo[writer]]
            found = explore_actions(calls, [fewer if r == writer else t for r, t in enumerate(todo)])
            assert {(p.rule, p.rank) for p in found.problems} >= {("stale", reader)}, (reader, writer)


@pytest.mark.parametrize("name", ["naive", "ring", "direct"])
def test_a_flag_that_is_raised_before_the_data_is_there_is_missed(name: str) -> None:
    calls = [[call("all_reduce", name, 3, is_small=True)]] * 3
    todo = [actions(of_rank, rank, 1) for rank, of_rank in enumerate(calls)]
    for rank in range(3):
        at = next(i for i, action in enumerate(todo[rank]) if action.raises)
        data = todo[rank][at]
        early = [*todo[rank][:at], replace(data, writes=()), replace(data, raises=False), *todo[rank][at + 1 :]]
        found = explore_actions(calls, [early if r == rank else t for r, t in enumerate(todo)])
        assert "stale" in {problem.rule for problem in found.problems}, rank


@pytest.mark.parametrize("name", ["ring", "direct", "tree", "recursive_doubling"])
def test_every_announcement_that_is_removed_leaves_somebody_waiting(name: str) -> None:
    calls = [[call("all_reduce", name, 3)] * 2] * 3
    todo = [actions(of_rank, rank, 1) for rank, of_rank in enumerate(calls)]
    for rank in range(3):
        last = max(i for i, action in enumerate(todo[rank]) if action.call == 0 and action.announces >= 0)
        for i in (i for i, action in enumerate(todo[rank][:last]) if action.announces >= 0):
            fewer = [replace(a, announces=-1) if k == i else a for k, a in enumerate(todo[rank])]
            found = explore_actions(calls, [fewer if r == rank else t for r, t in enumerate(todo)])
            assert "stale" not in {p.rule for p in found.problems}
    silent = [replace(a, announces=-1) for a in todo[0]]
    assert {p.rule for p in explore_actions(calls, [silent, *todo[1:]]).problems} == {"stuck"}


def test_a_rank_that_leaves_a_barrier_too_early_is_seen() -> None:
    calls = [[call("barrier", "dissemination", 2)] * 2] * 2
    todo = [actions(of_rank, rank, 1) for rank, of_rank in enumerate(calls)]
    hasty = [replace(action, waits=(), reuse=()) for action in todo[0]]
    assert ("ahead", 0) in {(p.rule, p.rank) for p in explore_actions(calls, [hasty, todo[1]]).problems}


def test_a_fingerprint_that_differs_without_a_reason_is_a_false_alarm() -> None:
    same = [[call("broadcast", "direct", 2)] * 2] * 2
    todo = [actions(of_rank, rank, 1) for rank, of_rank in enumerate(same)]
    entering = replace(todo[0][0], call=1)
    found = explore_actions(same, [[entering, *todo[0][1:]], todo[1]])
    assert "false alarm" in {p.rule for p in found.problems}


@st.composite
def _broken_programs(draw: st.DrawFn) -> tuple[str, str, list[SlotProgram]]:
    """The programs of any algorithm, with a wait, a step or a place that is not what it was."""
    collective, name = draw(st.sampled_from(MOVING))
    ranks = draw(st.integers(2, 4))
    programs = list(compile_schedule(build(collective, name, ranks)))
    for _ in range(draw(st.integers(1, 2))):
        rank = draw(st.integers(0, ranks - 1))
        program = programs[rank]
        what = draw(st.sampled_from(("unwait", "later", "place")))
        if what == "unwait":
            stage = draw(st.integers(0, program.stages - 1))
            waits = tuple(w[1:] if k == stage else w for k, w in enumerate(program.waits))
            program = replace(program, waits=waits)
        elif program.steps:
            i = draw(st.integers(0, len(program.steps) - 1))
            step = program.steps[i]
            changed = (
                replace(step, stage=min(step.stage + 1, program.stages - 1))
                if what == "later"
                else replace(step, place=0 if step.place >= 0 else -1)
            )
            program = replace(program, steps=(*program.steps[:i], changed, *program.steps[i + 1 :]))
        programs[rank] = program
    return collective, name, programs


@settings(max_examples=50, deadline=None)
@given(_broken_programs())
def test_what_is_seen_in_all_interleavings_of_a_slice_is_what_the_proof_says(
    broken: tuple[str, str, list[SlotProgram]],
) -> None:
    collective, name, programs = broken
    ranks = len(programs)
    proof = verify_slots(build(collective, name, ranks), programs)
    proven_wrong = {p.rule for p in proof.problems} & TIMING
    found = explore([[ModelCall("broken", programs)]] * ranks, batch=1)
    assert bool(found.problems) == bool(proven_wrong), (proven_wrong, [p.message for p in found.problems])


def test_nobody_sleeps_through_an_announcement() -> None:
    assert lost_wakeups() == []


def test_with_a_store_that_may_wait_in_a_buffer_a_rank_would_sleep_for_ever() -> None:
    assert lost_wakeups(is_sequential=False)


def test_a_failure_can_be_slept_through_so_no_sleep_may_be_without_a_limit() -> None:
    assert lost_wakeups("failure")
