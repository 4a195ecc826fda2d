from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

import farandole
from farandole.algorithms import build
from farandole.cluster import parse
from farandole.show.page import filled, page
from farandole.show.payload import Run
from farandole.show.titles import title
from farandole.simulate import simulate
from farandole.verify import Problem, Report
from pages import data_of

PLAYER = Path(__file__).parents[2] / "player"
RING = build("all_reduce", "ring", 4)
TEMPLATE = files("farandole.show").joinpath("player.html").read_text(encoding="utf-8")


def test_the_page_is_one_file_of_at_most_150_kilobytes_that_loads_nothing() -> None:
    assert len(TEMPLATE.encode()) <= 150 * 1024
    outside = re.findall(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=(?!\"data:)[^>]*>", TEMPLATE)
    assert outside == []
    assert re.findall(r"@import|\burl\((?!#)|\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", TEMPLATE) == []
    assert "default-src 'none'" in TEMPLATE


def test_the_committed_page_is_what_its_source_gives(tmp_path: Path) -> None:
    vite = PLAYER / "node_modules/vite/bin/vite.js"
    node = shutil.which("node")
    if node is None or not vite.exists():
        pytest.skip(
            "the player's tools are not installed: cd player && npm ci; scripts/build_player.sh --check does it"
        )
    command = [node, str(vite), "build", "--outDir", str(tmp_path), "--logLevel", "error"]
    subprocess.run(command, cwd=PLAYER, check=True, timeout=55)
    assert (tmp_path / "index.html").read_bytes() == TEMPLATE.encode()


def test_the_data_says_what_it_is_and_who_made_it() -> None:
    data = data_of(page(RING))
    assert (data["format"], data["version"]) == ("farandole.player", 1)
    assert data["made_by"] == f"farandole {farandole.__version__}"
    assert [run["title"] for run in data["runs"]] == ["Ring all-reduce"]


def test_a_page_is_the_same_every_time() -> None:
    assert page(RING) == page(build("all_reduce", "ring", 4))


def test_no_text_in_the_data_can_end_the_script() -> None:
    evil = "</script><script>alert(1)</script><!--"
    html = page(dataclasses.replace(RING, name=evil))
    assert html.count("<script") == TEMPLATE.count("<script")
    assert evil not in html
    assert data_of(html)["runs"][0]["name"] == evil


def test_a_name_that_looks_like_a_reference_of_a_pattern_stays_as_it_is() -> None:
    assert data_of(page(dataclasses.replace(RING, name="a\\1\\g<0>$&")))["runs"][0]["name"] == "a\\1\\g<0>$&"


def test_filled_changes_nothing_but_the_data() -> None:
    head, tail = TEMPLATE.split("null</script>", 1)
    assert filled('{"a":1}') == f'{head}{{"a":1}}</script>{tail}'


def test_a_report_that_is_given_is_the_one_that_is_shown() -> None:
    report = Report("mine", (Problem("race", "two steps touch one cell", rank=2),))
    run = data_of(page(RING, report))["runs"][0]
    assert [problem["message"] for problem in run["problems"]] == ["two steps touch one cell"]


def test_what_is_compared_may_be_a_schedule_a_trace_a_simulation_or_a_whole_run() -> None:
    simulation = simulate(RING, parse("switch:4"), 4096, trace=True)
    assert simulation.trace is not None
    tree = build("all_reduce", "tree", 4)
    pages = [page(RING, compare=other) for other in (tree, simulation.trace, simulation, Run(tree, trace=None))]
    second = [data_of(html)["runs"][1] for html in pages]
    assert [run["title"] for run in second] == [
        "Tree all-reduce",
        "Ring all-reduce",
        "Ring all-reduce",
        "Tree all-reduce",
    ]
    assert [run["trace"] is not None for run in second] == [False, True, True, False]
    assert [bool(run["trace"]["links"]) for run in second[1:3]] == [False, True]


@pytest.mark.parametrize(
    ("collective", "text", "expected"),
    [
        ("all_reduce", "halving_doubling", "Halving doubling all-reduce"),
        ("broadcast", "binomial", "Binomial broadcast"),
        ("all_reduce", "ring:order=0,2,1,3", "Ring all-reduce (order=0,2,1,3)"),
    ],
)
def test_a_schedule_is_called_as_one_says_it(collective: str, text: str, expected: str) -> None:
    assert title(build(collective, text, 4)) == expected
    assert title(dataclasses.replace(RING, name="")) == "All-reduce"
