from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farandole.errors import FormatError, UsageError
from farandole.run.auto import choose
from farandole.run.choices import Choices, agreed, announcement
from farandole.run.engine import DEFAULT_SLOT_BYTES
from farandole.run.machine import Machine, cores_of, this_machine
from farandole.run.profile import Profile, write_profile
from farandole.run.rendezvous import meet
from farandole.run.spawn import spawn
from farandole.run.wire import WORD_BYTES
from meetings import PATIENT_S, Party
from tuned import Tables, profile_of

RANKS_PY = str(Path(__file__).with_name("choice_ranks.py"))
CORES = this_machine().cores
# Algorithms that the built-in rule never chooses, so that it shows who has decided.
TABLES: Tables = {
    ("all_reduce", 3): {64: "ring", 4096: "tree"},
    ("all_gather", 3): {4096: "bruck"},
    ("all_to_all", 3): {4096: "bruck"},
    ("all_reduce", 2): {4096: "parameter_server"},
}


def choices(profile: Profile, path: Path, ranks: int = 3, cores: int = CORES) -> Choices:
    write_profile(profile, path)
    return agreed(announcement({"FARANDOLE_PROFILE": str(path)}, ranks), ranks, cores)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profile.json"


@pytest.mark.parametrize(
    ("collective", "size_bytes", "algorithm"),
    [
        ("all_reduce", 4, choose("all_reduce", 3, 4, CORES)),
        ("all_reduce", 8, "ring"),
        ("all_reduce", 508, "ring"),
        ("all_reduce", 512, "tree"),
        ("all_reduce", 32 << 10, "tree"),
        ("all_reduce", (32 << 10) + 4, choose("all_reduce", 3, (32 << 10) + 4, CORES)),
        ("all_gather", 508, "direct"),
        ("all_gather", 512, "bruck"),
        ("broadcast", 4096, "direct"),
        ("barrier", 0, "dissemination"),
    ],
)
def test_what_is_measured_counts_near_its_size_and_the_rule_elsewhere(
    path: Path, collective: str, size_bytes: int, algorithm: str
) -> None:
    found = choices(profile_of(TABLES), path)
    assert found.source == str(path)
    assert found.algorithm(collective, (size_bytes // 4,), 4) == algorithm


def test_the_size_of_an_all_to_all_is_that_of_one_ranks_buffer(path: Path) -> None:
    found = choices(profile_of(TABLES), path)
    assert found.algorithm("all_to_all", (128,) * 9, 4) == "bruck"  # 1,536 bytes a rank
    assert found.algorithm("all_to_all", (128,) * 9, 64) == "bruck"
    assert found.algorithm("all_to_all", (128,) * 9, 128) == "direct"  # 49,152 bytes a rank


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cpu": "Another CPU"}, "it was measured on another CPU: Another CPU, not "),
        ({"cores": CORES + 7}, f"it was measured on {CORES + 7} cores, and the ranks here share "),
    ],
)
def test_the_profile_of_another_machine_does_not_count(path: Path, change: dict[str, Any], words: str) -> None:
    here = this_machine()
    found = choices(profile_of(TABLES, Machine(**{"cpu": here.cpu, "cores": here.cores, **change})), path)
    assert found.steps == {}
    assert found.remark.startswith(f"the profile {path} does not count: {words}")
    assert found.algorithm("all_reduce", (1024,), 4) == "naive"


def test_the_cores_that_count_are_those_that_the_ranks_share(path: Path) -> None:
    machine = Machine(this_machine().cpu, cores=5)
    assert choices(profile_of(TABLES, machine), path, cores=5).source
    assert not choices(profile_of(TABLES, machine), path, cores=4).source


def test_a_profile_does_not_count_for_smaller_slots_than_it_was_measured_with(path: Path) -> None:
    write_profile(profile_of(TABLES), path)

    def chosen(slot_bytes: int) -> Choices:
        return agreed(announcement({"FARANDOLE_PROFILE": str(path)}, 3, slot_bytes), 3, CORES)

    assert chosen(DEFAULT_SLOT_BYTES) == chosen(2 * DEFAULT_SLOT_BYTES)
    assert chosen(DEFAULT_SLOT_BYTES).source == str(path)
    assert chosen(64 << 10).steps == {}
    assert chosen(64 << 10).remark.endswith("it was measured with slots of 1MiB, and these have 64KiB")


def test_measurements_for_another_number_of_ranks_do_not_count(path: Path) -> None:
    assert choices(profile_of(TABLES), path, ranks=4).steps == {}


def test_no_profile_leaves_the_rule(tmp_path: Path) -> None:
    for environ, remark in (
        ({"HOME": str(tmp_path)}, f"there is no profile at {tmp_path}/.config/farandole/profile.json"),
        ({"FARANDOLE_PROFILE": "off"}, "FARANDOLE_PROFILE is off"),
    ):
        assert agreed(announcement(environ, 3), 3, CORES) == Choices(3, CORES, {}, remark=remark)


def test_an_algorithm_that_does_not_fit_the_number_of_ranks_is_found_before_it_is_called(path: Path) -> None:
    with pytest.raises(FormatError, match="all_reduce on 3 ranks by hierarchical:levels=2,2: levels=2x2 is a shape"):
        choices(profile_of({("all_reduce", 3): {64: "hierarchical:levels=2,2"}}), path)


def test_a_profile_that_says_more_than_ranks_can_be_told_is_an_error(path: Path) -> None:
    sizes = {8 * 1000 * k: ("ring:order=0,1,2" if k % 2 else "ring:order=0,2,1") for k in range(1, 900)}
    with pytest.raises(FormatError, match="more often than ranks can be told"):
        choices(profile_of({("all_reduce", 3): sizes}), path)


def test_a_word_of_the_greatest_length_reaches_every_rank(key: str, party: Party) -> None:
    word = '"\\' * (WORD_BYTES // 2)
    for rank in (2, 0, 1):  # whoever comes first is the host
        party.come(rank, 3, key, PATIENT_S, 0, word if rank == 0 else "not rank 0's")
    assert [meeting.word for meeting in party.meetings()] == [word] * 3
    assert {meeting.cores for meeting in party.meetings()} == {CORES}
    assert meet(0, 1, key, 1).word == ""


def test_processes_that_have_ended_have_no_cores() -> None:
    assert cores_of([2**22 + 1]) == 0


def test_rank_0_decides_for_all_whatever_the_others_have(tmp_path: Path) -> None:
    write_profile(profile_of(TABLES), tmp_path / "0.json")
    write_profile(profile_of({("all_reduce", 3): {4096: "double_tree"}}), tmp_path / "1.json")
    (tmp_path / "2.json").write_text("this is none")
    settings = [str(tmp_path / f"{rank}.json") for rank in range(3)]
    answers = spawn(3, f"{RANKS_PY}:which", {"settings": settings}, timeout_s=40)
    assert answers == [["tree", "bruck", "direct", "parameter_server" if rank < 2 else ""] for rank in range(3)]
    small = {"settings": settings, "slot_bytes": 64 << 10}
    answers = spawn(3, f"{RANKS_PY}:which", small, timeout_s=40)
    assert [answer[:3] for answer in answers] == [["naive", "direct", "direct"]] * 3


@pytest.mark.parametrize("content", [None, '{"format": "farandole.profile", "version": 99}'])
def test_what_rank_0_cannot_read_is_the_same_error_on_every_rank(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "profile.json"
    if content is not None:
        path.write_text(content)
    answers = spawn(3, f"{RANKS_PY}:failure", {"settings": [str(path), "off", "off"]}, timeout_s=40)
    assert [kind for kind, _ in answers] == ["FormatError"] * 3
    assert len({message for _, message in answers}) == 1
    assert answers[2][1].startswith(f"rank 0's profile: {path}")


def test_a_communicator_says_which_algorithm_it_takes_and_why(path: Path) -> None:
    found = choices(profile_of(TABLES), path)
    for size_bytes in (64, 4096):
        told = found.explain("all_reduce", size_bytes)
        assert told.algorithm == found.algorithm("all_reduce", (size_bytes,), 1) == TABLES["all_reduce", 3][size_bytes]
        assert told.profile == str(path)
        assert str(path) in told.reason
    ruled = found.explain("broadcast", 64)
    assert (ruled.algorithm, ruled.profile) == (choose("broadcast", 3, 64, CORES), "")
    assert "the built-in rule" in ruled.reason
    assert "no measurement counts" in Choices(3, CORES, {}, deterministic=True).explain("all_reduce", 64).reason
    assert Choices(1, CORES, {}).explain("all_reduce", 64).algorithm == ""
    with pytest.raises(UsageError, match="not of -1 on 3"):
        found.explain("all_reduce", -1)
