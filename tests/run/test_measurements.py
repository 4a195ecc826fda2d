from __future__ import annotations

import bisect
import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.errors import FormatError
from farandole.run.measurements import REACH, load_profile, nearest, profile_path, steps
from farandole.run.profile import write_profile
from tuned import point, profile_of

sizes = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=8, unique=True).map(sorted)


@given(sizes, st.integers(0, 1 << 45))
def test_the_nearest_size_counts_and_none_that_is_far_away(measured: list[int], size: int) -> None:
    points = [point(each, f"{each}") for each in measured]
    found = nearest(points, size)

    def distance(other: int) -> float:
        if size == 0 or other == 0:
            return 0.0 if size == other else math.inf
        return abs(math.log(size) - math.log(other))

    least = min(distance(other) for other in measured)
    if found is None:
        assert least > math.log(REACH) - 1e-9
    else:
        assert distance(found.size_bytes) <= least + 1e-9
        assert least <= math.log(REACH) + 1e-9


@given(sizes, st.lists(st.sampled_from(["ring", "naive", "direct"]), min_size=8, max_size=8), st.integers(0, 1 << 45))
def test_the_steps_say_for_every_size_what_the_nearest_point_says(
    measured: list[int], names: list[str], size: int
) -> None:
    points = [point(each, name) for each, name in zip(measured, names, strict=False)]
    starts, algorithms = zip(*steps(points), strict=True)
    found = nearest(points, size)
    assert starts[0] == 0
    assert list(starts) == sorted(set(starts))
    assert all(a != b for a, b in itertools.pairwise(algorithms))
    assert algorithms[bisect.bisect_right(starts, size) - 1] == ("" if found is None else found.algorithm)


@pytest.mark.parametrize(
    ("environ", "path", "is_named"),
    [
        ({"HOME": "/home/me"}, "/home/me/.config/farandole/profile.json", False),
        ({"HOME": "/home/me", "XDG_CONFIG_HOME": "/etc/me"}, "/etc/me/farandole/profile.json", False),
        ({"HOME": "/home/me", "XDG_CONFIG_HOME": "not/absolute"}, "/home/me/.config/farandole/profile.json", False),
        ({"HOME": "/home/me", "FARANDOLE_PROFILE": "mine.json"}, "mine.json", True),
        ({"HOME": "/home/me", "FARANDOLE_PROFILE": ""}, "/home/me/.config/farandole/profile.json", False),
        ({"HOME": "/home/me", "FARANDOLE_PROFILE": "off"}, None, True),
        ({}, None, False),
    ],
)
def test_where_the_profile_is(environ: dict[str, str], path: str | None, is_named: bool) -> None:
    assert profile_path(environ) == (None if path is None else Path(path), is_named)


def test_one_that_is_not_there_is_an_error_only_where_it_is_named(tmp_path: Path) -> None:
    assert load_profile({"HOME": str(tmp_path)}) == (
        None, f"there is no profile at {tmp_path}/.config/farandole/profile.json",
    )  # fmt: skip
    with pytest.raises(FormatError, match="No such file or directory; correct FARANDOLE_PROFILE, or set it to off"):
        load_profile({"FARANDOLE_PROFILE": str(tmp_path / "none.json")})
    with pytest.raises(FormatError, match="Is a directory"):
        load_profile({"FARANDOLE_PROFILE": str(tmp_path)})


def test_one_that_is_there_is_read(tmp_path: Path) -> None:
    profile = profile_of({("all_reduce", 4): {64: "ring"}})
    path = tmp_path / ".config" / "farandole" / "profile.json"
    write_profile(profile, path)
    assert load_profile({"HOME": str(tmp_path)}) == (profile, str(path))
    assert load_profile({"HOME": "/", "FARANDOLE_PROFILE": str(path)}) == (profile, str(path))
    assert load_profile({"HOME": str(tmp_path), "FARANDOLE_PROFILE": "off"}) == (None, "FARANDOLE_PROFILE is off")
    path.write_text("{}")
    with pytest.raises(FormatError, match="missing required field"):
        load_profile({"HOME": str(tmp_path)})


def test_a_path_of_any_bytes_can_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "\udcff.json"
    profile = profile_of({("all_reduce", 4): {64: "ring"}})
    write_profile(profile, path)
    found, where = load_profile({"FARANDOLE_PROFILE": str(path)})
    assert found == profile
    assert where.encode().decode() == f"{tmp_path}/�.json"
