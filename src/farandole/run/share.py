"""Slot programs for inputs that all ranks can see: what a rank would copy into its slot is read where it is.

Whoever reads has waited for the copy, so it knows that the other is in the same call, and its input there. What is
new is that an input must not change while others may still read it: the engine ends such a call only when all
have ended it, and in place, where results are written over the input, a proof decides (``verify_slots``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from farandole.schedule import Schedule
from farandole.slots import INPUT, Operand, SlotProgram, Step
from farandole.verify.slots import verify_slots

Place = tuple[int, int]  # rank, place


@lru_cache(maxsize=128)
def shared(schedule: Schedule, programs: tuple[SlotProgram, ...], in_place: bool) -> tuple[SlotProgram, ...] | None:
    """``programs`` without copies of inputs; None where they would not be right, or would be the same."""
    made = share_inputs(programs)
    if made == programs or not verify_slots(schedule, made, in_place=in_place).ok:
        return None
    return made


def share_inputs(programs: Sequence[SlotProgram]) -> tuple[SlotProgram, ...]:
    """The programs with each copy of an input into a slot left out; its readers read the input itself."""
    writes = Counter((p.rank, step.place) for p in programs for step in p.steps if step.place >= 0)
    copies = {
        (program.rank, step.place)
        for program in programs
        for step in program.steps
        if step.operands == (Operand(INPUT),) and step.place >= 0 and writes[program.rank, step.place] == 1
    }
    kept = {
        p.rank: sorted({s.place for s in p.steps if s.place >= 0 and (p.rank, s.place) not in copies}) for p in programs
    }
    places = {(rank, old): new for rank, used in kept.items() for new, old in enumerate(used)}
    most = max(map(len, kept.values()))
    return tuple(
        replace(p, places=most, steps=tuple(s for old in p.steps if (s := _without(old, p.rank, places)) is not None))
        for p in programs
    )


def _without(step: Step, rank: int, places: dict[Place, int]) -> Step | None:
    """A step with the places that are left; None where nothing is left to write."""
    place = places.get((rank, step.place), -1)
    if place < 0 and not step.to_output:
        return None
    return replace(step, place=place, operands=tuple(_seen(operand, places) for operand in step.operands))


def _seen(operand: Operand, places: dict[Place, int]) -> Operand:
    if operand.rank == INPUT:
        return operand
    return replace(operand, place=places.get((operand.rank, operand.place), INPUT))
