"""The reference engine and the proof are written apart, from one definition; on wrong schedules they must agree."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, event, given, settings

from definitions import Array, outputs_for, same, shares
from farandole.collectives import Blocks, collective
from farandole.errors import ScheduleError
from farandole.run import reference
from farandole.schedule import Schedule
from farandole.verify import verify_schedule
from strategies import Mutant, mutants


def telling_inputs(schedule: Schedule) -> list[Array | None]:
    """Inputs whose sums tell which rank has contributed how often, and whose values tell where they are from."""
    what = collective(schedule.collective)
    length = 2 * schedule.chunks // (schedule.ranks if what.blocks is Blocks.PER_PAIR else 1)
    place = np.arange(length) + 1
    if what.input == "root":
        return [place if rank == schedule.root else None for rank in range(schedule.ranks)]
    if what.input == "own":
        return [np.arange(size) + 1000 * rank for rank, size in enumerate(shares(length, schedule.ranks))]
    return [place * 9**rank for rank in range(schedule.ranks)]


@settings(max_examples=300, deadline=None)
@given(mutants())
def test_a_mutant_that_gives_a_wrong_result_is_rejected_and_one_that_is_accepted_gives_the_right_one(
    mutant: Mutant,
) -> None:
    schedule = mutant.schedule
    assume(collective(schedule.collective).moves_data)
    report = verify_schedule(schedule)
    inputs = telling_inputs(schedule)
    try:
        outputs = reference.execute(schedule, inputs)
    except ScheduleError:
        event("no defined outcome")
        assert not report.ok
        return
    is_right = same(outputs, outputs_for(schedule.collective, inputs, schedule.root))
    event(f"right: {is_right}, accepted: {report.ok}")
    assert is_right or not report.ok
    if is_right:
        assert not {problem.rule for problem in report.problems} & {"missing", "wrong"}
