"""Prove slot programs: what the native engine runs, for every order in which the ranks may proceed.

Ranks proceed on their own; only waits order what they do. A wait is for a stage of a peer, and counters only
go up, so execution is confluent: what a rank is sure of when a stage begins does not depend on timing. It is a
vector: for each rank, the last stage that is known to be finished. The rules, by the word in ``Problem.rule``:

- ``unannounced``: a wait for a stage whose end is never announced: it would last for ever;
- ``race``: a place is read without a wait that makes sure that its writer has finished writing it;
- ``rewritten``: a place is written again without a wait that makes sure that it has been read;
- ``unwritten``: a place is read that nobody writes;
- ``overwritten``: in a call in place, an output is written over an input that another rank may yet read there;
- ``wrong``: a value is not folded from disjoint contributions, a partial one is taken for a finished one, or
  the output lacks something that the collective requires.

Between slices there is one rule, which the engine keeps and these programs need not: nobody writes into the
half of a slot that an earlier batch has used before every rank has announced that batch's last stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from farandole.collectives import collective
from farandole.schedule import Schedule
from farandole.slots import INPUT, Operand, SlotProgram, Step
from farandole.verify.report import Problem, Report

Place = tuple[int, int]  # rank, place
Known = list[list[list[int]]]  # by rank, stage and peer: the last stage of the peer that is known to be finished


def verify_slots(schedule: Schedule, programs: Sequence[SlotProgram], *, in_place: bool = False) -> Report:
    """Prove that ``programs`` carry out the collective of ``schedule``, whatever the timing.

    ``in_place`` says that each chunk of the output lies where the same chunk of the input does, which matters only
    where ranks read the inputs of others.
    """
    writers: dict[Place, list[Step]] = {}
    for program in programs:
        for step in program.steps:
            if step.place >= 0:
                writers.setdefault((program.rank, step.place), []).append(step)
    problems = [*_waits(programs), *_accesses(programs, writers), *_values(schedule, programs)]
    if in_place:
        problems.extend(_inputs_kept(programs))
    return Report(schedule.name or schedule.collective, tuple(problems), sum(len(p.steps) for p in programs))


def _known(programs: Sequence[SlotProgram]) -> Known:
    """What each rank is sure of when each of its stages begins."""
    ranks = len(programs)
    known = [[[-1] * ranks for _ in range(program.stages)] for program in programs]
    for stage in range(1, max(program.stages for program in programs)):
        for program in programs:
            mine = known[program.rank][stage]
            told = [known[program.rank][stage - 1], *(known[peer][stage - 1] for peer in program.waits[stage])]
            mine[:] = map(max, zip(*told, strict=True))
            mine[program.rank] = stage - 1
            for peer in program.waits[stage]:
                mine[peer] = max(mine[peer], stage - 1)
    return known


def _waits(programs: Sequence[SlotProgram]) -> Iterator[Problem]:
    for program in programs:
        for stage, peers in enumerate(program.waits):
            for peer in peers:
                if stage == 0 or not programs[peer].announces[stage - 1]:
                    yield Problem(
                        "unannounced",
                        f"rank {program.rank} waits before stage {stage} for rank {peer}, which never announces stage"
                        f" {stage - 1}",
                        program.rank, stage, -1, f"an announcement of rank {peer}", "none",
                    )  # fmt: skip


def _accesses(programs: Sequence[SlotProgram], writers: dict[Place, list[Step]]) -> Iterator[Problem]:
    known = _known(programs)
    for program in programs:
        for step in program.steps:
            for operand in step.operands:
                if operand.rank != INPUT:
                    yield from _read(program.rank, step, operand, writers.get((operand.rank, operand.place), []), known)


def _read(rank: int, step: Step, operand: Operand, writes: list[Step], known: Known) -> Iterator[Problem]:
    """What is wrong with one read. It is meant for the last write of an earlier stage."""
    what = f"rank {rank}, stage {step.stage}: place {operand.place} of rank {operand.rank}"
    facts = (rank, step.stage, step.chunk)
    if operand.place == INPUT:
        if operand.rank != rank and known[rank][step.stage][operand.rank] < 0:
            yield Problem(
                "race",
                f"rank {rank}, stage {step.stage}: rank {operand.rank} may not be in this call when its input is read",
                *facts, f"a wait for rank {operand.rank}", "none",
            )  # fmt: skip
        return
    earlier = [write.stage for write in writes if write.stage < step.stage]
    if not earlier:
        yield Problem("unwritten", f"{what} is read, and nobody has written it", *facts, "a value", "nothing")
        return
    if operand.rank == rank:
        return
    sure = known[rank][step.stage][operand.rank]
    if sure < max(earlier):
        yield Problem(
            "race",
            f"{what} is read; it is written in stage {max(earlier)}, and only the end of stage {sure} is sure",
            *facts, f"a wait for stage {max(earlier)}", f"sure of stage {sure}",
        )  # fmt: skip
    for write in writes:
        if write.stage >= step.stage and known[operand.rank][write.stage][rank] < step.stage:
            yield Problem(
                "rewritten",
                f"{what} is read, and may have been overwritten by then, in stage {write.stage}",
                *facts, f"a wait of rank {operand.rank} for this stage", "none",
            )  # fmt: skip


def _inputs_kept(programs: Sequence[SlotProgram]) -> Iterator[Problem]:
    """What is wrong where outputs are written over inputs.

    A read is over when its stage is known to be finished, if it comes before the announcement of that stage.
    """
    known = _known(programs)
    reads = [
        (operand.rank, step.chunk, program.rank, step.stage + (step.place < 0 and step.stage < program.stages - 1))
        for program in programs
        for step in program.steps
        for operand in step.operands
        if operand.rank not in {INPUT, program.rank} and operand.place == INPUT
    ]
    for program in programs:
        for step in program.steps:
            if not step.to_output or step.operands == (Operand(INPUT),):
                continue  # what is already there is not written
            for owner, chunk, reader, over in reads:
                if (owner, chunk) == (program.rank, step.chunk) and known[owner][step.stage][reader] < over:
                    yield Problem(
                        "overwritten",
                        f"rank {owner}, stage {step.stage}: chunk {chunk} is written over the input; rank {reader} may"
                        f" read it until stage {over} is over",
                        owner, step.stage, chunk, f"a wait for stage {over} of rank {reader}", "none",
                    )  # fmt: skip


def _values(schedule: Schedule, programs: Sequence[SlotProgram]) -> Iterator[Problem]:
    """Carry out all stages and follow who has contributed to what, as bit sets."""
    what = collective(schedule.collective)
    shape = (schedule.ranks, schedule.chunks, schedule.root)
    held, required, everyone = what.before(*shape), what.after(*shape), (1 << schedule.ranks) - 1
    slots: dict[Place, tuple[int, int, bool]] = {}  # chunk, contributors, is_partial
    outputs: dict[Place, int] = {}
    stages = max(program.stages for program in programs)
    for stage in range(stages):
        written: dict[Place, tuple[int, int, bool]] = {}
        for program in programs:
            for step in (s for s in program.steps if s.stage == stage):
                rank, chunk = program.rank, step.chunk
                bits, wrong = _folded(rank, step, slots, held[:, chunk])
                complete = bits == everyone if len(step.operands) > 1 else not step.is_partial
                if wrong or complete == step.is_partial or (step.to_output and step.is_partial):
                    reason = wrong or "a partial value and a finished one are mistaken for each other"
                    yield Problem("wrong", f"rank {rank}, stage {stage}, chunk {chunk}: {reason}", rank, stage, chunk)
                if step.place >= 0:
                    written[rank, step.place] = (chunk, bits, step.is_partial)
                if step.to_output:
                    outputs[rank, chunk] = bits
        slots |= written
    origin = None if what.reduces else what.origin(*shape)
    for rank, chunk in np.argwhere(required).tolist():
        want = everyone if origin is None else 1 << int(origin[chunk])
        if what.moves_data and outputs.get((rank, chunk)) != want:
            yield Problem(
                "wrong", f"the output of rank {rank} lacks chunk {chunk}, or has other contributions in it",
                rank, stages - 1, chunk, bin(want), bin(outputs.get((rank, chunk), 0)),
            )  # fmt: skip


def _folded(
    rank: int, step: Step, slots: dict[Place, tuple[int, int, bool]], held: NDArray[np.bool_]
) -> tuple[int, str]:
    """(contributors, what is wrong) of what a step writes; ``held`` says which ranks have the chunk as input."""
    bits = 0
    for operand in step.operands:
        if INPUT in {operand.rank, operand.place}:
            owner = rank if operand.rank == INPUT else operand.rank
            chunk, more, is_partial = step.chunk, (1 << owner) if held[owner] else 0, False
        else:
            chunk, more, is_partial = slots.get((operand.rank, operand.place), (-1, 0, False))
        if chunk != step.chunk or not more:
            return bits, "an operand is another chunk, or nothing"
        if is_partial != operand.is_partial:
            return bits, "a partial value and a finished one are mistaken for each other"
        if bits & more:
            return bits, "a contribution is counted twice"
        bits |= more
    return bits, ""
