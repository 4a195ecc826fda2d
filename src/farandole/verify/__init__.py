"""Proofs: of schedules by symbolic execution, and of lowered programs over every interleaving."""

from farandole.verify.report import Problem, Report
from farandole.verify.schedule import contributions, contributions_after, members, states, verify_schedule

__all__ = ["Problem", "Report", "contributions", "contributions_after", "members", "states", "verify_schedule"]
