"""In which order contributions are added up, read off the programs that add them.

Floating-point sums depend on it. An *order* is a nested tuple: ``(0, 1, 2)`` adds rank 1's to rank 0's, then rank 2's;
``(0, (1, 2))`` adds the sum of the last two to the first. Where every chunk of every output has one and the same order,
results depend neither on how a buffer is cut into chunks nor on its length.
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole.slots import INPUT, SlotProgram

Order = tuple[object, ...] | int


def summing_orders(programs: Sequence[SlotProgram]) -> set[Order]:
    """The orders that occur in the outputs of ``programs``, which are those of all ranks.

    >>> from farandole.algorithms import build
    >>> from farandole.run.compile import compile_schedule
    >>> summing_orders(compile_schedule(build("all_reduce", "direct", 3)))
    {(0, 1, 2)}
    >>> len(summing_orders(compile_schedule(build("all_reduce", "ring", 3))))  # each chunk has one of its own
    3
    """
    slots: dict[tuple[int, int], Order] = {}
    found: set[Order] = set()
    for stage in range(max(program.stages for program in programs)):
        written: dict[tuple[int, int], Order] = {}
        for program in programs:
            for step in (s for s in program.steps if s.stage == stage):
                orders = [
                    program.rank if o.rank == INPUT else o.rank if o.place == INPUT else slots[o.rank, o.place]
                    for o in step.operands
                ]
                order = _folded(orders)
                if step.place >= 0:
                    written[program.rank, step.place] = order
                if step.to_output:
                    found.add(order)
        slots |= written
    return found


def _folded(orders: list[Order]) -> Order:
    """The order of a sum from the left; going on from a sum is the same as one longer sum."""
    first, *others = orders
    if not others:
        return first
    return (*(first if isinstance(first, tuple) else (first,)), *others)
