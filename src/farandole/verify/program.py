"""Prove a program over every interleaving: that it cannot deadlock, has no race, and computes its collective.

There are infinitely many executions, but what must happen before what is the same in all of them (see
:mod:`farandole.verify.happens_before`). So three questions, each answered once, prove them all:

- *deadlock*: does one greedy run finish?
- *race*: are any two steps of a rank that touch one cell, and of which one writes it, ordered by what must
  happen before what? (:mod:`farandole.verify.clocks`)
- *values*: does that run compute the collective? Without races all runs compute the same.
  (:mod:`farandole.verify.values`)

The rules, by the word in ``Problem.rule``: those of form (:mod:`farandole.verify.wellformed`) and of values;
``deadlock``, with the wait cycle rank by rank; ``dependency-cycle``, the same within one rank, where no message
is involved; and ``race``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from farandole.accesses import conflicts
from farandole.collectives import collective
from farandole.errors import UsageError
from farandole.program import Program
from farandole.verify.clocks import unordered
from farandole.verify.deadlock import deadlocks
from farandole.verify.happens_before import Run, edges, run, smallest_safe_depth_of
from farandole.verify.report import Problem, Report
from farandole.verify.schedule import LIMIT
from farandole.verify.traffic import Traffic, traffic
from farandole.verify.values import value_problems
from farandole.verify.wellformed import form_problems, shared_queues


def verify_program(program: Program, depth: int | None = None) -> Report:
    """Prove ``program`` with queues of ``depth`` slots, or say all that is wrong (at most the first 1,000 problems).

    Without ``depth`` the proof is for every depth from the report's ``smallest_safe_depth`` on: nothing is
    taken as ordered that only a full queue orders. With it, for that depth alone.
    """
    if depth is not None and depth < 0:
        raise UsageError(f"the depth of a queue is 0 (rendezvous) or more, not {depth}", got=depth)
    collective(program.collective).check_chunks(program.ranks, program.chunks)
    messages = traffic(program)
    # With two writers or readers a queue's messages have no order, and nothing more can be said.
    shared = list(shared_queues(program, messages))
    smallest = None if shared else smallest_safe_depth_of(program, messages)
    found = chain(shared, form_problems(program, messages), () if shared else _problems(program, messages, depth))
    name = program.name or program.collective
    return Report(name, tuple(islice(found, LIMIT)), len(messages.sends), smallest)


def smallest_safe_depth(program: Program) -> int | None:
    """The least queue depth at which ``program`` cannot deadlock: 0 is rendezvous, None means that none is safe.

    Every greater depth is safe too. A program with two writers or readers of one queue has no safe depth.

    >>> from farandole.algorithms import build
    >>> from farandole.lower import lower
    >>> ring = build("all_reduce", "ring", 8)
    >>> smallest_safe_depth(lower(ring, "send-first")), smallest_safe_depth(lower(ring, "send-first", fuse=True))
    (1, 2)
    """
    messages = traffic(program)
    return None if any(shared_queues(program, messages)) else smallest_safe_depth_of(program, messages)


def _problems(program: Program, messages: Traffic, depth: int | None) -> Iterator[Problem]:
    done = run(edges(program, messages, depth))
    if not done.is_complete:
        yield from deadlocks(program, messages, done)
        # What else is wrong shows where the queues do not stand in the way.
        done = run(edges(program, messages, None))
    yield from _races(program, done)
    yield from value_problems(program, messages, done)


def _races(program: Program, done: Run) -> Iterator[Problem]:
    pairs = unordered(program, done, conflicts(program, done.turn))
    for earlier, later, cell in zip(
        pairs.earlier.tolist(), pairs.later.tolist(), (pairs.cell % max(program.cells, 1)).tolist(), strict=True
    ):
        rank, lane, step = program.position(later)
        _, other_lane, other_step = program.position(earlier)
        other = f"lane {other_lane} step {other_step}"
        yield Problem(
            "race",
            f"rank {rank}: {other} ({program.describe(earlier)}) and lane {lane} step {step}"
            f" ({program.describe(later)}) both touch {program.cell_name(cell)}, and nothing says which comes first",
            rank, -1, program.chunk_of_cell(cell), f"an order between {other} and lane {lane} step {step}", "none",
            lane, step,
        )  # fmt: skip
