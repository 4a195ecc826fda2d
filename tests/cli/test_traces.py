"""Traces on the command line: recorded from real ranks, simulated, shown, and in Perfetto's format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from farandole.algorithms import build
from farandole.cli._app import application
from farandole.export.json import write_schedule
from farandole.export.perfetto import from_perfetto
from farandole.trace import load
from pages import data_of


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(line: str) -> Result:
    return CliRunner().invoke(application(), line.split())


def test_what_real_ranks_did_is_shown_beside_the_simulation_of_the_same_schedule() -> None:
    write_schedule(build("reduce", "binomial", 2, root=1), Path("mine.json"))
    ran = run("run mine.json --size 24KiB --repetitions 1 --trace measured.json")
    assert ran.exit_code == 0, ran.output
    trace = load(Path("measured.json"))
    assert (trace.source, trace.collective, trace.ranks, trace.root) == ("measured", "reduce", 2, 1)
    assert f"wrote measured.json: {len(trace)} events in " in ran.stderr
    assert f"measured; times are good to {trace.uncertainty_ns} ns" in ran.stderr
    shown = run("show --trace measured.json --cluster switch:2 -o both.html")
    assert shown.exit_code == 0, shown.output
    measured, simulated = data_of(Path("both.html").read_text())["runs"]
    assert (measured["trace"]["kind"], simulated["trace"]["kind"]) == ("measured", "simulated")
    assert measured["trace"]["total_ns"] == trace.time_ns
    assert measured["trace"]["summary"] == f"24KiB, times good to {trace.uncertainty_ns} ns"
    assert simulated["trace"]["summary"] == "24KiB on switch:2"
    assert [one["title"].rpartition(", ")[2] for one in (measured, simulated)] == ["measured", "simulated"]
    assert measured["transfers"] == simulated["transfers"]
    assert run("show --trace measured.json -o x.perfetto.json").exit_code == 0
    Path("unknown.json").write_bytes(replace(trace, name="of mine").to_json())
    unknown = run("show --trace unknown.json -o x.html")
    assert unknown.exit_code == 2
    assert "'of mine', which is not in the table" in " ".join(unknown.stderr.split())
    assert run("show mine.json --trace unknown.json -o x.html").exit_code == 0
    assert set(from_perfetto(Path("x.perfetto.json").read_bytes()).events()) == set(trace.events())


def test_a_simulation_is_written_in_both_formats_and_perfettos_is_read_again() -> None:
    line = "simulate ring --cluster switch:4 --size 1MiB"
    assert run(f"{line} --trace a.json").stderr.startswith("wrote a.json: 60 events in ")
    assert run(f"{line} --trace a.perfetto.json").exit_code == 0
    assert run("show ring -n 4 --cluster switch:4 -s 1MiB -o b.perfetto.json").exit_code == 0
    assert Path("a.perfetto.json").read_bytes() == Path("b.perfetto.json").read_bytes()
    for name in ("a.json", "a.perfetto.json"):
        assert run(f"show --trace {name} -o {name}.html").exit_code == 0
    assert Path("a.json.html").read_bytes() == Path("a.perfetto.json.html").read_bytes()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run ring -n 2 --size 8,16 --trace x.json", "--trace is of one algorithm and one size, on two ranks or more"),
        ("run -n 2 --size 8 --trace x.json", "--trace is of one algorithm and one size"),
        ("run ring -n 1 --size 8 --trace x.json", "on two ranks or more"),
        ("run ring -n 2 --size 8 --trace x.txt", "ends with .json or .perfetto.json, not to 'x.txt'"),
        ("show", "say which algorithm, or --trace FILE for that of a trace"),
        ("show ring -n 2 -o x.perfetto.json", "add --cluster to simulate one, or --trace for one that there is"),
        ("show ring -n 2 --compare tree --cluster switch:2 -o x.perfetto.json", "--compare is for a page"),
        ("show --trace nowhere.json -o x.html", "nowhere.json cannot be read"),
        ("show --trace nowhere.perfetto.json -o x.html", "nowhere.perfetto.json cannot be read"),
    ],
)
def test_what_cannot_be_traced_is_said_before_anything_runs(line: str, words: str) -> None:
    result = run(line)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert not Path("x.json").exists()
