from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from farandole.bench import machine
from farandole.cli._app import application

SMALL = "bench --ranks 2 --sizes 8,1KiB --rounds 1 --batch 1ms --collective all_reduce --against ''"


@pytest.fixture(autouse=True)
def _without_measuring_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "copy_speed", lambda *_: 1e10)


def run(line: str) -> Result:
    return CliRunner().invoke(application(), shlex.split(line))


def test_the_json_has_all_that_is_promised_and_the_plot_is_written(tmp_path: Path) -> None:
    result = run(f"{SMALL} --json --plot {tmp_path / 'bench.svg'}")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["format"] == "farandole.bench"
    assert {"machine", "parameters", "results", "ratios", "geomean", "missing"} <= set(found)
    assert [row["size_bytes"] for row in found["results"]] == [8, 1024]
    assert {"library", "collective", "ranks", "size_bytes", "median_s", "p99_s", "checked"} <= set(found["results"][0])
    assert (tmp_path / "bench.svg").read_text().startswith("<svg")


def test_people_get_tables() -> None:
    result = run(SMALL)
    assert result.exit_code == 0, result.output
    assert "all_reduce on 2 ranks" in result.stdout
    assert "copying memory" in result.stdout


def test_what_is_left_out_is_named_on_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    result = run(SMALL.replace("''", "mpich") + " --json")
    assert result.exit_code == 0, result.output
    assert "mpich is left out" in result.stderr
    assert json.loads(result.stdout)["missing"][0]["library"] == "mpich"


@pytest.mark.parametrize(
    "line",
    [
        "bench --against glu",
        "bench --ranks 2,x",
        "bench --ranks 0",
        "bench --collective barrier",
        "bench --via smoke",
        "bench --dtype float8",
        "bench --sizes 0:8",
    ],
)
def test_misuse_ends_with_2(line: str) -> None:
    result = run(line)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("farandole bench: ")
