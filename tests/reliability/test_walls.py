"""Who may come at what ranks share, what a rank that has gone mad can do, and what happens where room is short."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.run.spawn import spawn, spawn_all

RANKS_PY = str(Path(__file__).with_name("wall_ranks.py"))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user, or mount")


@pytest.mark.parametrize("seed", range(3))
def test_nonsense_in_the_shared_memory_makes_no_rank_crash_or_hang(seed: int) -> None:
    outcomes = spawn_all(3, f"{RANKS_PY}:scribble", {"seed": seed}, timeout_s=40)
    assert [(outcome.status, outcome.output) for outcome in outcomes] == [(0, "")] * 3, outcomes
    assert all(isinstance(outcome.result, str) for outcome in outcomes)


@as_root
def test_a_process_of_another_user_comes_at_nothing_that_ranks_share() -> None:
    told = spawn(2, f"{RANKS_PY}:seen_by_another_user")[0]
    assert len(told) == 5
    assert set(told.values()) <= {"Permission denied", "Operation not permitted"}


def test_the_name_of_a_meeting_cannot_be_guessed() -> None:
    names = {name for job in range(2) for name in spawn(2, f"{RANKS_PY}:names_in_use")[1]}
    assert all(re.fullmatch("@farandole-[0-9a-f]{32}", name) for name in names)
    assert len(names) >= 2


@as_root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_small_dev_shm_does_not_matter() -> None:
    code = (
        "from farandole.run.spawn import spawn\n"
        f"print(spawn(2, {RANKS_PY + ':in_a_small_shared_memory_folder'!r}, timeout_s=40))"
    )
    command = (
        f"mount -t tmpfs -o size=64k tmpfs /dev/shm && exec {sys.executable} -c '{code.replace(chr(39), chr(34))}'"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )
    if "mount:" in done.stderr or "unshare" in done.stderr:
        pytest.skip("this container may not mount")
    assert done.stdout.strip() == "[[65536, 0], [65536, 0]]", done.stderr


def test_a_rank_without_descriptors_left_says_so() -> None:
    for told in spawn(2, f"{RANKS_PY}:without_descriptors"):
        assert told["error"] == "ResourceError", told
        assert told["needed"] > told["available"] <= 1  # the last one may not do: some calls take two
        assert "ulimit -n" in told["message"]


def test_a_rank_with_little_address_space_says_what_it_needs_and_has() -> None:
    for told in spawn(2, f"{RANKS_PY}:with_little_address_space"):
        assert told["error"] == "ResourceError", told
        assert told["needed"] > 128 << 20
        assert told["available"] < 64 << 20
        assert "ulimit -v" in told["message"]
