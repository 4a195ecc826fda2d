from __future__ import annotations

from pathlib import Path

import pytest

import farandole
from farandole.errors import FormatError, UnknownNameError, UsageError
from farandole.run.choices import agreed, announcement
from farandole.run.explain import verdict
from farandole.run.machine import Machine, this_machine
from farandole.run.profile import write_profile
from tuned import Tables, point, profile_of

TABLES: Tables = {
    ("all_reduce", 4): {64: "ring", 4096: "direct", 65536: "direct"},
    ("all_reduce", 8): {64: "ring"},
    ("broadcast", 4): {4096: "binomial"},
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "profile.json"
    write_profile(profile_of(TABLES), path)
    return {"FARANDOLE_PROFILE": str(path)}


def test_a_measurement_comes_with_the_runners_up(environ: dict[str, str]) -> None:
    found = farandole.explain("all_reduce", 100, 4, environ=environ)
    assert found.algorithm == "ring"
    assert found.reason == (
        "the fastest at 64, the nearest size that was measured, 3.00 times as fast as naive; "
        + environ["FARANDOLE_PROFILE"]
    )
    assert [row.algorithm for row in found.measured] == ["ring", "tree", "naive"]
    assert (found.measured_bytes, found.profile) == (64, environ["FARANDOLE_PROFILE"])


def test_the_default_stays_where_nothing_was_faster(environ: dict[str, str]) -> None:
    found = farandole.explain("all_reduce", 65536, 4, environ=environ)
    assert found.algorithm == "direct"
    assert found.reason.startswith("none was faster by more than the noise at 64KiB")
    assert verdict(point(64, "direct")).startswith("none was faster")


@pytest.mark.parametrize(
    ("collective", "size_bytes", "ranks", "algorithm", "remark"),
    [
        ("all_reduce", 1 << 20, 4, "direct", "has no size within 8 times of 1MiB, only 64, 4KiB, 64KiB"),
        ("all_reduce", 64, 2, "naive", "has no all_reduce on 2 ranks, only on 4, 8"),
        ("all_gather", 64, 4, "direct", "has no all_gather on 4 ranks"),
    ],
)
def test_the_rule_decides_where_nothing_was_measured(
    environ: dict[str, str], collective: str, size_bytes: int, ranks: int, algorithm: str, remark: str
) -> None:
    found = farandole.explain(collective, size_bytes, ranks, environ=environ)
    assert found.algorithm == algorithm
    assert found.reason.startswith("the built-in rule: ")
    assert found.reason.endswith(remark)
    assert (found.measured, found.measured_bytes, found.profile) == ((), None, "")


def test_the_profile_of_another_machine_does_not_count(environ: dict[str, str]) -> None:
    machine = Machine(this_machine().cpu, this_machine().cores + 1)
    write_profile(profile_of(TABLES, machine), environ["FARANDOLE_PROFILE"])
    found = farandole.explain("all_reduce", 64, 4, environ=environ)
    assert found.algorithm == "naive"
    assert "does not count: it was measured on" in found.reason


def test_in_a_deterministic_communicator_the_rule_decides_on_reductions(environ: dict[str, str]) -> None:
    asked = {**environ, "FARANDOLE_DETERMINISTIC": "1"}
    for found in (
        farandole.explain("all_reduce", 100, 4, environ=asked),
        farandole.explain("all_reduce", 100, 4, environ=environ, deterministic=True),
    ):
        assert found.algorithm == "naive"
        assert found.reason.endswith("in a deterministic communicator, no measurement counts for what reduces")
    assert farandole.explain("all_reduce", 100, 4, environ=asked, deterministic=False).algorithm == "ring"


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_what_is_explained_is_what_ranks_choose(environ: dict[str, str], ranks: int, deterministic: bool) -> None:
    chosen = agreed(announcement(environ, ranks, deterministic=deterministic), ranks, this_machine().cores)
    for collective in ("all_reduce", "all_gather", "broadcast", "all_to_all"):
        for size_bytes in [0, *(1 << k for k in range(2, 24))]:
            blocks = ranks if collective == "all_to_all" else 1
            found = farandole.explain(collective, size_bytes, ranks, deterministic=deterministic, environ=environ)
            assert found.algorithm == chosen.algorithm(collective, (size_bytes,) * blocks, 1)


def test_one_rank_takes_none() -> None:
    assert farandole.explain("all_reduce", 8, 1).algorithm == ""


def test_misuse_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'all_reduce'"):
        farandole.explain("all_reduse", 8, 2)
    with pytest.raises(UsageError, match="not of -1 on 2"):
        farandole.explain("all_reduce", -1, 2)
    (tmp_path / "broken.json").write_text("[]")
    with pytest.raises(FormatError, match=r"broken.json: expected object, got array; remove it and measure again"):
        farandole.explain("all_reduce", 8, 2, environ={"FARANDOLE_PROFILE": str(tmp_path / "broken.json")})
