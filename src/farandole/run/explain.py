"""Which algorithm a call takes that asks for none, and why: a profile's measurement, or the built-in rule."""

from __future__ import annotations

import os
from collections.abc import Mapping

from farandole.collectives import collective as find_collective
from farandole.run.choices import ALONE, DETERMINISTIC, Explanation, by_rule, check_size
from farandole.run.machine import cores_misfit, cpu_misfit, this_machine
from farandole.run.measurements import REACH, load_profile, nearest
from farandole.run.profile import Point, Profile
from farandole.run.start import is_deterministic
from farandole.units import counted, format_size


def explain(
    collective: str,
    size_bytes: int,
    ranks: int,
    *,
    deterministic: bool | None = None,
    environ: Mapping[str, str] | None = None,
) -> Explanation:
    """Which algorithm ``auto`` stands for on this machine, and why.

    ``size_bytes`` is the largest buffer of a rank. The ranks are taken to share the cores of this process; rank 0's
    profile counts for all. ``deterministic`` is as for :func:`farandole.init`. Raises FormatError where the profile is
    malformed.

    >>> print(explain("all_gather", 1 << 20, 4, environ={"FARANDOLE_PROFILE": "off"}).algorithm)
    direct
    """
    reduces = find_collective(collective).reduces
    check_size(size_bytes, ranks)
    if ranks == 1:
        return ALONE
    variables = os.environ if environ is None else environ
    profile, where = load_profile(variables)
    remark = where if profile is None else _remark(profile, where, collective, ranks, size_bytes)
    if reduces and (is_deterministic(variables) if deterministic is None else deterministic):
        remark = DETERMINISTIC
    table = None if profile is None else profile.table(collective, ranks)
    point = None if remark or table is None else nearest(table.points, size_bytes)
    if point is None:
        return by_rule(collective, ranks, size_bytes, this_machine().cores, remark)
    return Explanation(point.algorithm, f"{verdict(point)}; {where}", point.measured, point.size_bytes, where)


def _remark(profile: Profile, where: str, collective: str, ranks: int, size_bytes: int) -> str:
    """Why a profile does not count for a call; empty where it does."""
    here = this_machine()
    theirs = profile.machine
    misfit = cpu_misfit(theirs.cpu, here.cpu) or cores_misfit(theirs.cores, here.cores)
    if misfit:
        return f"the profile {where} does not count: {misfit}"
    table = profile.table(collective, ranks)
    if table is None:
        known = [str(t.ranks) for t in profile.tables if t.collective == collective]
        others = f", only on {', '.join(known)}" if known else ""
        return f"the profile {where} has no {collective} on {counted(ranks, 'rank')}{others}"
    if nearest(table.points, size_bytes) is None:
        sizes = ", ".join(format_size(point.size_bytes) for point in table.points)
        return f"the profile {where} has no size within {REACH} times of {format_size(size_bytes)}, only {sizes}"
    return ""


def verdict(point: Point) -> str:
    """The outcome of what was measured for one size, in words."""
    times = {row.algorithm: row.median_s for row in point.measured}
    at = f"at {format_size(point.size_bytes)}, the nearest size that was measured"
    if point.algorithm != point.default:
        mine, theirs = times.get(point.algorithm), times.get(point.default)
        ratio = f", {theirs / mine:.2f} times as fast as {point.default}" if mine and theirs else ""
        return f"the fastest {at}{ratio}"
    others = [name for name in times if name != point.algorithm]
    return f"none was faster by more than the noise {at}" if others else f"nothing else was measured {at}"
