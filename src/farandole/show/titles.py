"""What a schedule is called in pictures, and what its collective promises, in a sentence."""

from __future__ import annotations

from farandole.schedule import Schedule

_GOALS = {
    "all_reduce": "every rank ends with the sum of all ranks' values.",
    "reduce_scatter": "each rank ends with its own part of the sum of all ranks' values.",
    "all_gather": "every rank ends with the parts of all ranks.",
    "broadcast": "every rank ends with what rank {root} has.",
    "reduce": "rank {root} ends with the sum of all ranks' values.",
    "gather": "rank {root} ends with the parts of all ranks.",
    "scatter": "each rank ends with its own part of what rank {root} has.",
    "all_to_all": "every rank ends with the part that each rank has for it.",
    "barrier": "every rank ends knowing that all ranks have arrived.",
}


def title(schedule: Schedule, *, with_options: bool = True) -> str:
    """The algorithm and the collective, as one says them.

    >>> from farandole.algorithms import build
    >>> title(build("all_reduce", "hierarchical:levels=2x2", 4))
    'Hierarchical all-reduce (levels=2,2)'
    """
    name, _, options = schedule.name.partition(":")
    words = f"{spoken(name).replace('-', ' ')} {spoken(schedule.collective)}".strip()
    shown = f"{words[0].upper()}{words[1:]}"
    return f"{shown} ({options})" if options and with_options else shown


def spoken(name: str) -> str:
    """A name of ours as it is written in a sentence: ``all-reduce``."""
    return name.replace("_", "-")


def goal(schedule: Schedule) -> str:
    """What the collective promises, as the rest of a sentence that begins with 'The goal: '."""
    return _GOALS[schedule.collective].format(root=schedule.root)
