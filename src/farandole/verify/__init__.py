"""Proofs: of schedules by symbolic execution, and of lowered programs over every interleaving."""

from farandole.verify.program import smallest_safe_depth, verify_program
from farandole.verify.report import Problem, Report
from farandole.verify.schedule import contributions, contributions_after, members, states, verify_schedule

__all__ = [
    "Problem",
    "Report",
    "contributions",
    "contributions_after",
    "members",
    "smallest_safe_depth",
    "states",
    "verify_program",
    "verify_schedule",
]
