"""Inputs that others read where they are: in every interleaving, and as the proof says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.algorithms import REGISTRY, build
from farandole.run.compile import compile_schedule
from farandole.run.share import share_inputs
from farandole.verify.interleavings import ModelCall, actions, explore, explore_actions
from farandole.verify.slots import verify_slots

SHARING = [key for key in sorted(REGISTRY) if key[0] in {"all_gather", "all_reduce", "all_to_all", "reduce_scatter"}]


@pytest.mark.parametrize(("collective", "name"), SHARING)
def test_inputs_that_others_read_where_they_are_stay_as_they_are_if_the_proof_says_so(
    collective: str, name: str
) -> None:
    schedule = build(collective, name, 3)
    programs = share_inputs(compile_schedule(schedule))
    for is_in_place in (False, True):
        once = ModelCall("shared", programs, is_in_place=is_in_place)
        assert once.shares_inputs
        found = explore([[once, once]] * 3, batch=1)
        assert (found.problems == ()) == verify_slots(schedule, programs, in_place=is_in_place).ok


@pytest.mark.parametrize("collective", ["all_gather", "all_to_all", "reduce_scatter"])
def test_a_call_that_ends_before_all_have_read_its_input_is_seen(collective: str) -> None:
    programs = share_inputs(compile_schedule(build(collective, "direct", 3)))
    calls = [[ModelCall("shared", programs)] * 2] * 3
    todo = [actions(of_rank, rank, 1) for rank, of_rank in enumerate(calls)]
    hasty = [replace(action, waits=()) if action.stage == programs[0].stages else action for action in todo[0]]
    assert {p.rule for p in explore_actions(calls, [hasty, *todo[1:]]).problems} == {"stale"}
