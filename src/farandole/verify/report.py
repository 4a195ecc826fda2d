"""What a proof says: the problems found, or none."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.errors import ScheduleError
from farandole.notebook import shown_by
from farandole.program import Program


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule, where it is broken, and what stands there instead of what should.

    ``rule`` is a short fixed word; ``rank``, ``round``, ``chunk``, ``lane`` and ``step`` are -1 where they do
    not apply (a schedule has rounds, a program has lanes and steps). They count from 0, and only the message, which is
    for people, counts rounds from 1, as captions and pictures do.
    ``expected`` and ``got`` are in words, ``message`` is the whole sentence. ``waits`` are the ranks that wait for
    each other in a deadlock, as pairs of who waits and for whom.
    """

    rule: str
    message: str
    rank: int = -1
    round: int = -1
    chunk: int = -1
    expected: str = ""
    got: str = ""
    lane: int = -1
    step: int = -1
    waits: tuple[tuple[int, int], ...] = ()


def problem_at(program: Program, index: int, rule: str, what: str, expected: str, got: str, chunk: int = -1) -> Problem:
    """A problem with the step of that index, said to be ``what``."""
    rank, lane, step = program.position(index)
    where = f"rank {rank} lane {lane} step {step} ({program.describe(index)})"
    return Problem(rule, f"{where}: {what}", rank, -1, chunk, expected, got, lane, step)


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a proof.

    ``transfers`` counts what was checked: the transfers of a schedule, the messages of a program.
    ``smallest_safe_depth`` is the least queue depth at which the program cannot deadlock (0 is rendezvous), or
    None where no program was checked, or none is safe.
    """

    name: str
    problems: tuple[Problem, ...]
    transfers: int = 0
    smallest_safe_depth: int | None = None

    _repr_html_ = shown_by("report_html")

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def raise_if_wrong(self) -> None:
        """Raise ScheduleError with the first problems, unless all is well."""
        if self.problems:
            shown = "\n".join(f"  {problem.message}" for problem in self.problems[:10])
            more = f"\n  and {len(self.problems) - 10} more" if len(self.problems) > 10 else ""
            raise ScheduleError(f"{self.name} is rejected:\n{shown}{more}", problems=self.problems)
