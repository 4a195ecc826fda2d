from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import FormatError
from farandole.run.profile import read_profile, write_profile
from tuned import profile_of


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "profile.json"
    write_profile(profile_of({("all_reduce", 4): {64: "naive", 4096: "ring"}}), path)
    return path


def changed(path: Path, *where: str | int, value: Any) -> bytes:
    """The file with one value replaced; ``...`` removes it."""
    whole = inner = json.loads(path.read_bytes())
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    if value is ...:
        del inner[where[-1]]
    return json.dumps(whole).encode()


def test_what_is_written_is_read_again(written: Path) -> None:
    assert read_profile(written) == profile_of({("all_reduce", 4): {64: "naive", 4096: "ring"}})
    head = json.loads(written.read_bytes())
    assert (head["format"], head["version"]) == ("farandole.profile", 1)
    assert head["made_by"].startswith("farandole ")


def test_fields_that_are_not_known_are_ignored(written: Path) -> None:
    assert read_profile(changed(written, "colour", value="blue")) == read_profile(written)


@pytest.mark.parametrize(
    ("where", "value", "field", "words"),
    [
        (("format",), "farandole.schedule", "format", "expected farandole.profile, got farandole.schedule"),
        (("version",), 2, "version", "this release reads version 1, and this file has 2"),
        (("version",), ..., "", "missing required field version"),
        (("machine", "cores"), 0, "machine.cores", "expected int >= 1"),
        (("tables", 0, "collective"), "all_reduse", "tables[0].collective", "did you mean 'all_reduce'"),
        (("tables", 0, "ranks"), 1, "tables[0].ranks", ">= 2"),
        (("tables", 0, "points"), [], "tables[0].points", "length >= 1"),
        (("tables", 0, "points", 1, "size_bytes"), 64, "tables[0].points[1].size_bytes", "ascending"),
        (("tables", 0, "points", 1, "size_bytes"), -1, "tables[0].points[1].size_bytes", ">= 0"),
        (("tables", 0, "points", 0, "algorithm"), "rong", "tables[0].points[0].algorithm", "'ring'"),
        (("tables", 0, "points", 0, "algorithm"), "ring:order=x", "tables[0].points[0].algorithm", "order"),
        (("tables", 0, "points", 0, "default"), "", "tables[0].points[0].default", "length >= 1"),
        (
            ("tables", 0, "points", 0, "measured", 0, "median_s"), 0.0,
            "tables[0].points[0].measured[0].median_s", "> 0",
        ),
        (
            ("tables", 0, "points", 0, "measured", 0, "rounds"), "many",
            "tables[0].points[0].measured[0].rounds", "expected int",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_field(
    written: Path, where: tuple[str | int, ...], value: Any, field: str, words: str
) -> None:
    with pytest.raises(FormatError) as caught:
        read_profile(changed(written, *where, value=value))
    assert caught.value.facts["where"] == field
    assert words in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_profile_at_all_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        read_profile(data)


def test_a_table_that_is_there_twice_is_refused(written: Path) -> None:
    table = json.loads(written.read_bytes())["tables"][0]
    with pytest.raises(FormatError, match=r"tables\[1\]: all_reduce on 4 ranks is there twice"):
        read_profile(changed(written, "tables", value=[table, table]))


def test_a_file_that_is_too_large_is_not_even_parsed(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatError, match="4,194,304 bytes at most") as caught:
        read_profile(path)
    assert caught.value.facts["path"] == str(path)


def test_the_error_says_which_file_and_what_to_do(written: Path) -> None:
    written.write_bytes(changed(written, "version", value=7))
    with pytest.raises(FormatError) as caught:
        read_profile(written)
    assert str(caught.value) == (
        f"{written}: version: this release reads version 1, and this file has 7; "
        "remove it and measure again (farandole tune), or set FARANDOLE_PROFILE=off"
    )


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError])
def test_a_write_that_is_broken_off_leaves_the_old_file_and_nothing_else(
    written: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    before = written.read_bytes()

    def fail(_: int) -> None:
        raise failure

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(failure):
        write_profile(profile_of({("all_gather", 2): {8: "direct"}}), written)
    assert written.read_bytes() == before
    assert list(written.parent.iterdir()) == [written]


def test_a_link_to_a_profile_stays_a_link(written: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(written)
    newer = profile_of({("all_gather", 2): {8: "direct"}})
    write_profile(newer, link)
    assert link.is_symlink()
    assert read_profile(written) == newer


def test_a_newer_profile_replaces_the_tables_that_it_has() -> None:
    old = profile_of({("all_reduce", 4): {64: "ring"}, ("all_gather", 2): {8: "direct"}})
    new = profile_of({("all_reduce", 4): {128: "naive"}, ("all_reduce", 2): {64: "tree"}})
    found = old.updated(new)
    assert [(t.collective, t.ranks, [p.size_bytes for p in t.points]) for t in found.tables] == [
        ("all_gather", 2, [8]),
        ("all_reduce", 2, [64]),
        ("all_reduce", 4, [128]),
    ]
    assert found.table("all_reduce", 4) == new.table("all_reduce", 4)
    assert found.table("all_reduce", 8) is None
