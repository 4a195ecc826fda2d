"""Values in notebooks: through IPython's own formatter where it is installed, and in a browser's frame."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from farandole.algorithms import build
from farandole.cluster import parse
from farandole.show.notebook import frame, table
from farandole.show.page import page
from farandole.simulate import compare, simulate
from farandole.verify import verify_schedule
from pages import broken, data_of

RING = build("all_reduce", "ring", 4)


def formats_of(value: Any) -> dict[str, str]:
    """What a notebook gets, by its type."""
    pytest.importorskip("IPython", reason="IPython is not installed: pip install 'farandole[notebook]'")
    from IPython.core.formatters import DisplayFormatter

    formatter: Any = DisplayFormatter()
    formats: dict[str, str] = formatter.format(value)[0]
    return formats


def html_of(value: Any) -> str:
    """The HTML among them."""
    return formats_of(value)["text/html"]


def framed(html: str) -> str:
    """The page in the frame."""
    found = re.match(r'<iframe srcdoc="([^"]*)" title="The player" sandbox="allow-scripts"', html)
    assert found is not None, html[:200]
    return unescape(found[1])


def test_a_schedule_is_the_player_in_a_frame() -> None:
    assert framed(html_of(RING)) == page(RING)
    assert data_of(framed(html_of(broken())))["runs"][0]["problem_count"] == len(verify_schedule(broken()).problems)


def test_a_schedule_that_is_too_much_for_a_page_says_so_in_a_table() -> None:
    html = html_of(build("all_reduce", "naive", 600))
    assert html.startswith("<table>")
    assert "naive: all_reduce on 600 ranks" in html
    assert "a page holds at most 300,000" in html


def test_a_trace_and_a_simulation_with_one_open_on_the_time() -> None:
    schedule = build("reduce", "binomial", 4, root=2)
    simulation = simulate(schedule, parse("switch:4"), 1 << 20, trace=True)
    shown = framed(html_of(simulation.trace))
    assert '<meta name="farandole-place" content="view=time">' in shown
    assert data_of(shown)["runs"][0]["root"] == 2
    both = html_of(simulation)
    assert data_of(framed(both))["runs"][0]["trace"]["links"] != []
    assert both.endswith("</table>")


def test_a_simulation_is_a_table_of_its_numbers_and_so_is_a_trace_of_an_unknown_algorithm() -> None:
    simulation = simulate(RING, parse("switch:4"), 1 << 20, trace=True)
    assert simulation.trace is not None
    html = html_of(replace(simulation, trace=None))
    assert html.startswith("<table>")
    assert "ring: all_reduce of 1MiB" in html
    assert f"busy {simulation.busiest(1)[0].utilisation:.1%} of the time" in html
    html = html_of(replace(simulation.trace, name="of mine", uncertainty_ns=59))
    assert html.startswith("<table>")
    assert "of mine: all_reduce of 1MiB, simulated" in html
    assert "59 ns" in html


def test_a_report_is_a_table_of_its_problems() -> None:
    report = verify_schedule(broken())
    html = html_of(report)
    assert f"{len(report.problems)} problems" in html
    assert all(problem.message in unescape(html) for problem in report.problems)
    assert "ring: correct" in html_of(verify_schedule(RING))


def test_a_comparison_and_a_cluster_are_drawn() -> None:
    compared = compare("all_reduce", parse("switch:4"), [64, 1 << 20], algorithms=["ring", "tree"])
    for value, words in ((compared, "all_reduce on 4 ranks of switch:4"), (parse("ring:5"), "d4")):
        drawn = formats_of(value)["image/svg+xml"]
        assert drawn.startswith("<svg")
        assert words in drawn
    assert "image/svg+xml" not in formats_of(parse("ring:1000"))


def test_what_looks_like_markup_is_text() -> None:
    assert table([["<b>", 'a "quote" & more']]).count("<b>") == 0
    assert "<script>" not in html_of(verify_schedule(replace(RING, name="<script>")))
    name = '"><img src=x onerror=alert(1)>'
    assert framed(html_of(replace(RING, name=name))).count("<img") == 0
    assert unescape(frame("<head></head>", 'a"b').partition('srcdoc="')[2]).startswith("<head><meta")


def test_nothing_is_loaded_before_a_notebook_asks() -> None:
    check = "import farandole; farandole.Schedule, farandole.Trace; import sys; print('farandole.show' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout == "False\n"
