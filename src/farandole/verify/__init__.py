"""Proofs: of schedules by symbolic execution, and of lowered programs over every interleaving."""

from farandole.verify.report import Problem, Report
from farandole.verify.schedule import contributions, members, verify_schedule

__all__ = ["Problem", "Report", "contributions", "members", "verify_schedule"]
