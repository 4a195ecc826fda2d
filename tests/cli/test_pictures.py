"""The files that ``farandole show`` writes, and what goes with a page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest
from typer.testing import CliRunner, Result

from farandole.algorithms import build
from farandole.cli._app import application
from farandole.cluster import parse
from farandole.export.json import write_schedule
from farandole.show import svg
from farandole.show.page import page
from farandole.show.payload import Run
from farandole.simulate import simulate
from pages import data_of

APP = application()
RING = build("all_reduce", "ring", 4)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(line: str) -> Result:
    return CliRunner().invoke(APP, line.split())


def written(line: str, path: str) -> str:
    result = run(line)
    assert (result.exit_code, result.stderr) == (0, f"wrote {path}\n"), result.stderr
    return Path(path).read_text(encoding="utf-8")


def test_a_page_is_that_of_the_library() -> None:
    assert written("show ring -n 4 -o ring.html", "ring.html") == page(RING)


def test_an_svg_is_a_strip_or_moves() -> None:
    assert written("show ring -n 4 -o ring.svg", "ring.svg") == svg.strip(RING)
    assert written("show ring -n 4 --moving -o ring.svg", "ring.svg") == svg.animated(RING)


def test_a_gif_is_written() -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'farandole[gif]'")
    assert run("show tree -n 2 -o tree.gif").exit_code == 0
    assert Path("tree.gif").read_bytes().startswith(b"GIF89a")


def test_a_cluster_gives_a_page_its_time() -> None:
    shown = data_of(written("show ring -n 4 --cluster switch:8 --size 1MiB -o ring.html", "ring.html"))
    simulation = simulate(RING, parse("switch:8"), 1 << 20, trace=True)
    assert simulation.trace is not None
    trace = shown["runs"][0]["trace"]
    assert (trace["kind"], trace["summary"]) == ("simulated", "1MiB on switch:8")
    assert trace["total_ns"] == simulation.trace.time_ns


def test_another_algorithm_is_compared_on_the_same_cluster() -> None:
    shown = data_of(written("show ring -n 4 --compare tree --cluster switch:4 -s 8KiB -o both.html", "both.html"))
    assert [(one["title"], one["trace"]["summary"]) for one in shown["runs"]] == [
        ("Ring all-reduce", "8KiB on switch:4"),
        ("Tree all-reduce", "8KiB on switch:4"),
    ]


def test_a_trace_is_shown_and_with_a_cluster_beside_its_simulation() -> None:
    simulation = simulate(RING, parse("switch:4"), 4096, trace=True)
    assert simulation.trace is not None
    Path("trace.json").write_bytes(simulation.trace.to_json())
    alone = data_of(written("show ring -n 4 --trace trace.json -o ring.html", "ring.html"))
    assert [one["trace"]["total_ns"] for one in alone["runs"]] == [simulation.trace.time_ns]
    both = data_of(written("show ring -n 4 --trace trace.json --cluster ring:4 -o ring.html", "ring.html"))
    assert [one["trace"]["summary"] for one in both["runs"]] == ["4KiB", "4KiB on ring:4"]


def test_a_file_to_compare_with_may_be_a_trace_or_a_schedule() -> None:
    simulation = simulate(RING, parse("switch:4"), 4096, trace=True)
    assert simulation.trace is not None
    Path("trace.json").write_bytes(simulation.trace.to_json())
    write_schedule(build("all_reduce", "direct", 4), "direct.json")
    trace = written("show ring -n 4 --compare trace.json -o a.html", "a.html")
    assert trace == page(RING, compare=simulation.trace)
    schedule = written("show ring -n 4 --compare direct.json -o b.html", "b.html")
    assert schedule == page(RING, compare=Run(build("all_reduce", "direct", 4)))


def test_open_writes_a_page_of_its_own_and_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def opens(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", opens)
    result = run("show ring -n 4 --open")
    assert (result.exit_code, result.stdout) == (0, "")
    assert Path(url2pathname(urlparse(opened[0]).path)).read_text(encoding="utf-8") == page(RING)
    assert run("show ring -n 4 --open -o here.html").exit_code == 0
    assert opened[1] == Path("here.html").resolve().as_uri()


def test_where_there_is_no_browser_open_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _address: False)
    assert "there is no browser to open it in" in run("show ring -n 4 --open").stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("show ring -n 4 --compare tree", "--compare is for a page: add -o FILE.html, or --open"),
        ("show ring -n 4 --cluster switch:4 -o a.svg", "--cluster is for a page"),
        ("show ring -n 4 --moving -o a.gif", "--moving is for an SVG"),
        ("show ring -n 4 --moving", "--moving is for an SVG"),
        ("show ring -n 4 --cluster switch:3 -o a.html", "ring is for 4 ranks, but switch:3 has 3"),
        ("show ring -n 4 --trace none.json -o a.html", "none.json cannot be read"),
        ("show ring -n 64 -o a.svg", "too much for a strip"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(line: str, said: str) -> None:
    result = run(line)
    assert result.exit_code == 2
    assert said in result.stderr
    assert list(Path().iterdir()) in ([], [Path("none.json")])
