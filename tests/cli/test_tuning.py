"""``farandole tune`` and ``farandole explain``."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import farandole
from command_line import as_json, run
from farandole.bench import tune as bench
from farandole.run.machine import Machine, this_machine
from farandole.run.profile import Profile, read_profile, write_profile
from tuned import profile_of

SMALL = "tune --ranks 2 --sizes 64,1KiB --collective all_reduce --budget 0s"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the profile goes if nothing is said."""
    monkeypatch.delenv("FARANDOLE_PROFILE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "farandole" / "profile.json"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Profile:
    """What is found without measuring."""
    found = profile_of({("all_reduce", 2): {64: "ring", 1024: "naive"}})
    monkeypatch.setattr(bench, "measure", lambda *_, **__: found)
    return found


def test_tune_measures_and_the_profile_is_where_explain_and_init_look_for_it(place: Path) -> None:
    result = run(SMALL)
    assert result.exit_code == 0, result.output
    assert f"kept in {place}" in result.stdout
    assert "2 of 2 contests had too few rounds to decide anything" in result.stderr
    [table] = read_profile(place).tables
    assert [point.size_bytes for point in table.points] == [64, 1024]
    explained = as_json("explain all_reduce --ranks 2 --size 100")
    assert (explained["profile"], explained["measured_bytes"]) == (str(place), 64)


def test_the_json_of_tune_has_all_that_is_promised(place: Path, measured: Profile) -> None:
    found = as_json(SMALL)
    assert (found["format"], found["kind"], found["profile"]) == ("farandole.tune", "measured", str(place))
    assert found["machine"]["cores"] == this_machine().cores
    assert [row["algorithm"] for row in found["results"]] == ["ring", "naive"]
    for row in found["results"]:
        assert {"collective", "ranks", "size_bytes", "algorithm", "reason", "measured"} <= set(row)
        assert {"algorithm", "median_s", "rounds"} <= set(row["measured"][0])
    assert read_profile(place) == measured


def test_people_get_a_table_of_each_collective(place: Path, measured: Profile) -> None:
    assert place.parent.parent.is_dir()
    lines = run(SMALL).stdout.splitlines()
    assert lines[0].startswith(f"measured on {measured.machine.cpu}, ")
    assert "all_reduce on 2 ranks" in lines
    assert any(line.split()[:4] == ["64", "ring", "10.0", "us"] and "3.00 x naive" in line for line in lines)


@pytest.mark.parametrize(("share", "words"), [(0.04, ""), (0.31, "other programs used 31% of the cores meanwhile")])
def test_a_busy_machine_is_remarked_upon(
    tmp_path: Path, measured: Profile, monkeypatch: pytest.MonkeyPatch, share: float, words: str
) -> None:
    found = msgspec.structs.replace(measured, others_share=share)
    monkeypatch.setattr(bench, "measure", lambda *_, **__: found)
    result = run(f"{SMALL} -o {tmp_path / 'profile.json'}")
    assert result.exit_code == 0, result.output
    assert ("other programs" in result.stderr) == bool(words)
    assert words in result.stderr
    assert read_profile(tmp_path / "profile.json").others_share == share


def test_a_profile_of_this_machine_keeps_what_is_not_measured_again(place: Path, measured: Profile) -> None:
    write_profile(profile_of({("all_gather", 4): {64: "ring"}, ("all_reduce", 2): {8: "tree"}}), place)
    assert run(SMALL).exit_code == 0
    found = read_profile(place)
    assert [(t.collective, t.ranks) for t in found.tables] == [("all_gather", 4), ("all_reduce", 2)]
    assert found.table("all_reduce", 2) == measured.table("all_reduce", 2)


def test_a_profile_of_another_machine_is_replaced(place: Path, measured: Profile) -> None:
    write_profile(profile_of({("all_gather", 4): {64: "ring"}}, Machine("Another CPU", 2)), place)
    result = run(SMALL)
    assert "was of another machine, and is replaced" in result.stderr
    assert read_profile(place) == measured


def test_the_environment_or_an_option_says_where(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: Profile
) -> None:
    monkeypatch.setenv("FARANDOLE_PROFILE", str(tmp_path / "named.json"))
    assert run(SMALL).exit_code == 0
    assert run(f"{SMALL} -o {tmp_path / 'folder' / 'asked.json'}").exit_code == 0
    assert read_profile(tmp_path / "named.json") == read_profile(tmp_path / "folder" / "asked.json") == measured
    assert not place.exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tune --ranks 2,x", "numbers of ranks are written 2,4,8"),
        ("tune --ranks 1", "on 2 ranks or more"),
        ("tune --sizes 6", "a multiple of 4 bytes"),
        ("tune --collective all_reduse", "did you mean 'all_reduce'"),
        ("tune -c all_reduse -c all_reduce", "did you mean 'all_reduce'"),
        ("bench -c all_reduse -c all_reduce", "did you mean 'all_reduce'"),
        ("bench --against glo --against gloo", "did you mean 'gloo'"),
        ("tune --budget long", "a time is written"),
        ("tune -o .", "cannot be written"),
        ("tune", "there is no place for the profile (FARANDOLE_PROFILE is off"),
        ("explain all_reduse -n 2 -s 8", "did you mean 'all_reduce'"),
        ("explain all_reduce -n 2 -s much", "a size is written"),
    ],
)
def test_misuse_ends_with_2_before_anything_is_measured(
    line: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(bench, "measure")
    result = run(line)
    assert result.exit_code == 2, result.output
    assert words in result.stderr


def test_a_file_that_is_no_profile_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(bench, "measure")
    (tmp_path / "mine.json").write_text('{"my": "file"}')
    result = run(f"{SMALL} -o {tmp_path / 'mine.json'}")
    assert result.exit_code == 2
    assert "missing required field" in result.stderr
    assert (tmp_path / "mine.json").read_text() == '{"my": "file"}'


def test_an_interrupt_leaves_the_old_profile_and_no_process(tmp_path: Path) -> None:
    old = profile_of({("all_gather", 4): {64: "ring"}})
    path = tmp_path / "profile.json"
    write_profile(old, path)
    environ = {
        **os.environ, "FARANDOLE_PROFILE": str(path), "PYTHONPATH": str(Path(farandole.__file__).parents[1]),
    }  # fmt: skip
    line = "from farandole.bench import tune\nfrom farandole.cli import main\nimport os, signal\n"
    line += "measure = tune.measure\n"
    line += "tune.measure = lambda *a, **k: measure(*a, **{**k, 'progress': lambda _: os.kill(os.getpid(), 2)})\nmain()"
    command = [sys.executable, "-c", line, *shlex.split("tune --ranks 2 --sizes 64 --budget 600s")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    assert read_profile(path) == old
    assert list(tmp_path.iterdir()) == [path]


def test_explain_says_which_and_why(place: Path) -> None:
    found = as_json("explain all_reduce --ranks 4 --size 1MiB")
    assert (found["kind"], found["algorithm"], found["measured"]) == ("computed", "direct", [])
    assert found["reason"].startswith("the built-in rule: over shared memory every rank reaches every other at once")
    assert found["reason"].endswith(f"there is no profile at {place}")
    write_profile(profile_of({("all_reduce", 4): {1 << 20: "tree"}}), place)
    found = as_json("explain all_reduce --ranks 4 --size 1MiB")
    assert (found["kind"], found["algorithm"]) == ("measured", "tree")
    assert [row["algorithm"] for row in found["measured"]] == ["tree", "direct"]
    lines = run("explain all_reduce --ranks 4 --size 2MiB").stdout.splitlines()
    assert lines[0] == "all_reduce of 2MiB on 4 ranks: tree"
    assert lines[1] == f"the fastest at 1MiB, the nearest size that was measured, 2.00 times as fast as direct; {place}"
    assert lines[2].split() == ["measured", "median", "quartiles", "x", "fastest", "rounds"]
    assert lines[3].split()[0] == "tree"
