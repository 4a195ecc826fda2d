"""Slot programs: what the ranks of one host do, through memory that they share. The types; see ``run.compile``.

Every rank has a *slot* in shared memory: *places*, each as long as the longest chunk, that it alone writes
and every rank may read. It also has a counter that only goes up. A program is cut into *stages*:

- in stage 0 a rank puts what it sends in round 0 into its slot;
- in stage k + 1 it waits until its sources have finished stage k, takes what it receives in round k
  straight out of their slots, and puts what it sends in round k + 1 into its own;
- once its part of the slot is written, a stage is announced by the counter (where anyone waits for it, and at
  the end); what only goes to the rank's own output is written after that. The last stage is announced at its end.

A value is *partial* if it has been reduced but lacks contributions. Partial values stay in slots, where they
may be wider than the user's dtype: that is how 16-bit floats are accumulated in float32 and rounded once. The
step that adds the last contribution *finishes* the value: it rounds it, and divides it where that is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

INPUT = -1


@dataclass(frozen=True, slots=True)
class Operand:
    """A value to read: a place in the slot of ``rank``, or the chunk itself in the reader's own INPUT.

    Where inputs lie in shared memory, ``place`` may be INPUT: the chunk in the input of ``rank``.
    """

    rank: int
    place: int = 0
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """Fold the operands of one chunk; write the result to the output, to a place in one's slot, or to both.

    ``place`` is -1 where the slot is not written. With one operand it is a copy.
    """

    stage: int
    chunk: int
    operands: tuple[Operand, ...]
    to_output: bool
    place: int
    is_partial: bool
    finishes: bool


@dataclass(frozen=True, slots=True)
class SlotProgram:
    """What one rank does for one slice.

    ``waits[k]`` are the ranks whose stage k - 1 must be finished before stage k begins; ``announces[k]``
    says whether the end of stage k is made known. ``places`` is how many the slots of all ranks have.
    """

    rank: int
    stages: int
    places: int
    steps: tuple[Step, ...]
    waits: tuple[tuple[int, ...], ...]
    announces: tuple[bool, ...]
