"""The pages about prediction hold what the program says."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from farandole.algorithms import REGISTRY
from farandole.cli._app import application
from farandole.cluster import load

ROOT = Path(__file__).parents[1]
PAGES = ("clusters.md", "simulation.md")


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def script_of(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_large_worlds_is_that_of_the_record() -> None:
    script = script_of("benchmarks/large_worlds.py")
    record = json.loads((ROOT / "benchmarks" / "large_worlds.json").read_text(encoding="utf-8"))["results"]
    page = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
    table, verdict = script.table(record).split("\n\n")
    assert table in page
    assert verdict in page
    measured = {(row["cluster"], row["collective"], row["algorithm"]) for row in record}
    assert measured == {(spec, *key) for spec in script.CLUSTERS for key in REGISTRY}


def test_the_page_of_claims_is_what_its_script_writes() -> None:
    script = script_of("scripts/claims.py")
    assert script.PAGE.read_text(encoding="utf-8") == script.page()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_on_the_page_runs(page: str) -> None:
    lines = [line for block in blocks(page, "") for line in block.splitlines() if line.startswith("farandole ")]
    assert lines
    for line in lines:
        result = CliRunner().invoke(application(), shlex.split(line)[1:])
        assert result.exit_code == 0, (line, result.output)


def test_the_python_on_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks("clusters.md", "python"):
        exec(compile(block, "clusters.md", "exec"), {})  # noqa: S102 - it is ours
    assert "h0.switch->network" in capsys.readouterr().out


@pytest.mark.skipif(sys.version_info < (3, 11), reason="reading TOML needs Python 3.11")
def test_the_file_on_the_page_can_be_read(tmp_path: Path) -> None:
    (block,) = blocks("clusters.md", "toml")
    path = tmp_path / "page.toml"
    path.write_text(block)
    cluster = load(path)
    assert cluster.ranks == 8
    assert cluster.bandwidth[cluster.route(0, 4)].min() == 6.25e9
