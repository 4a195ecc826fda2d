from __future__ import annotations

from pathlib import Path

import pytest

from farandole.run.profile import write_profile
from farandole.run.spawn import spawn
from tuned import profile_of

pytest.importorskip("torch", reason="the backend is for PyTorch, which is not installed")


def test_a_group_takes_what_the_profile_of_its_rank_0_says(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    write_profile(profile_of({("all_reduce", 2): {4096: "parameter_server"}}), profile)
    answers = spawn(
        2,
        f"{Path(__file__).with_name('profile_ranks.py')}:auto",
        {"path": str(tmp_path / "store"), "profiles": [str(profile), str(tmp_path / "there is none")]},
    )
    assert answers == [["parameter_server", "direct"]] * 2
