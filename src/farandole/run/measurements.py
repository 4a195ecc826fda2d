"""A profile in use: where it is, and which of its measurements counts for which size.

A measurement counts for exactly its number of ranks, for the sizes that are nearer to it than to another (by their
ratio), and for those at most REACH times as large or as small.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from farandole.errors import FormatError
from farandole.run.profile import OFF, VARIABLE, Point, Profile, read_profile

REACH = 8
Steps = list[tuple[int, str]]


def profile_path(environ: Mapping[str, str]) -> tuple[Path | None, bool]:
    """Where the profile is to be, None where there is to be none; and whether the user has said so.

    >>> profile_path({"HOME": "/home/me"})
    (PosixPath('/home/me/.config/farandole/profile.json'), False)
    >>> profile_path({"FARANDOLE_PROFILE": "off"})
    (None, True)
    """
    named = environ.get(VARIABLE, "")
    if named:
        return (None if named == OFF else Path(named)), True
    base, home = environ.get("XDG_CONFIG_HOME", ""), environ.get("HOME", "")
    if not base.startswith("/"):  # a relative one is to be ignored
        base = f"{home}/.config" if home else ""
    return (Path(base) / "farandole" / "profile.json" if base else None), False


def load_profile(environ: Mapping[str, str]) -> tuple[Profile | None, str]:
    """The profile that the environment leads to, and where it is; or None, and why.

    Raises FormatError where it is malformed, or cannot be read although it is named.
    """
    path, is_named = profile_path(environ)
    if path is None:
        return None, f"{VARIABLE} is {OFF}" if is_named else "there is no home folder to keep a profile in"
    try:
        return read_profile(path), shown(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        if is_named:
            raise _unreadable(path, error) from None
        return None, f"there is no profile at {shown(path)}"
    except OSError as error:
        raise _unreadable(path, error) from None


def nearest(points: Sequence[Point], size_bytes: int) -> Point | None:
    """The point that counts for a size, if one does; ``points`` are ascending."""
    spans = zip(points, _spans(points), strict=True)
    return next((point for point, (start, end) in spans if start <= size_bytes < end), None)


def steps(points: Sequence[Point]) -> Steps:
    """From which size on which algorithm counts; ``""`` is the built-in rule.

    >>> from farandole.run.profile import Point
    >>> steps([Point(64, "naive", "naive", ()), Point(256, "direct", "naive", ())])
    [(0, ''), (8, 'naive'), (128, 'direct'), (2049, '')]
    """
    listed: Steps = []
    at = 0
    for point, (start, end) in zip(points, _spans(points), strict=True):
        listed += [(at, ""), (start, point.algorithm)] if start > at else [(start, point.algorithm)]
        at = end
    listed.append((at, ""))
    return [step for i, step in enumerate(listed) if i == 0 or step[1] != listed[i - 1][1]]


def _spans(points: Sequence[Point]) -> list[tuple[int, int]]:
    """For each point, the sizes that it counts for: from the first to before the second."""
    sizes = [point.size_bytes for point in points]
    between = [0, *(math.isqrt(a * b - 1) + 1 if a else 1 for a, b in itertools.pairwise(sizes)), 2**70]
    return [
        (max(-(-size // REACH), before), min(size * REACH + 1, after))
        for size, before, after in zip(sizes, between, between[1:], strict=False)
    ]


def _unreadable(path: Path, error: OSError) -> FormatError:
    return FormatError(
        f"{shown(path)} cannot be read: {error.strerror}; correct {VARIABLE}, or set it to {OFF}", path=shown(path)
    )


def shown(path: Path) -> str:
    """A path as text that can be sent and printed, whatever bytes are in it."""
    return os.fsencode(path).decode(errors="replace")
