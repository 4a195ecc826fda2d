from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from command_line import as_json, run
from farandole.algorithms import build
from farandole.cli import cluster, compare, simulate
from farandole.export.json import write_schedule
from farandole.trace import load

EXAMPLES = [
    *(line for line in cluster.EXAMPLES if "toml" not in line),
    *simulate.EXAMPLES,
    *compare.EXAMPLES,
]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("line", [line for line in EXAMPLES if "dgx-h100:4" not in line and "crossovers" not in line])
def test_the_examples_of_the_help_run(line: str) -> None:
    result = run(line.removeprefix("farandole "))
    assert result.exit_code == 0, result.output
    assert result.stdout


def test_simulate_says_what_the_model_says() -> None:
    found = as_json("simulate ring --cluster switch:4@1GB/s,2us --size 4MB")
    assert found["kind"] == "simulated"
    assert found["format"] == "farandole.simulate"
    assert found["time_s"] == pytest.approx(6 * (2e-6 + 1e6 / 1e9))
    assert found["busbw"] == pytest.approx(found["algbw"] * 1.5)
    assert {link["bytes"] for link in found["links"]} == {6e6}
    assert found["bottleneck"] == "d0->switch"
    assert found["critical_path"]


def test_simulate_takes_schedules_from_files_and_writes_traces() -> None:
    write_schedule(build("all_reduce", "ring", 4), Path("mine.json"))
    found = as_json("simulate mine.json --cluster switch:8@1GB/s,2us --size 4MB --trace t.json")
    assert found["time_s"] == as_json("simulate ring -n 4 --cluster switch:8@1GB/s,2us --size 4MB")["time_s"]
    assert load(Path("t.json")).time_ns == pytest.approx(found["time_s"] * 1e9, abs=1)


def test_late_ranks_and_slow_links_change_the_time() -> None:
    line = "simulate ring --cluster ring:8@50GB/s --size 64MiB"
    usual = as_json(line)["time_s"]
    assert as_json(f"{line} --slow 3-4:0.25")["time_s"] > 3 * usual
    assert as_json(f"{line} --delay 3:5ms")["time_s"] > usual + 4e-3
    assert as_json(f"{line} --startup 10us")["time_s"] == pytest.approx(usual + 14 * 10e-6)
    assert as_json(f"{line} --jitter 10us --seed 1")["time_s"] > usual


def test_compare_finds_the_best_for_each_size() -> None:
    found = as_json("compare --cluster switch:16@100Gbit/s,10us --sizes 1KiB,256MiB -a tree -a ring")
    assert found["best"] == [
        {"size_bytes": 1024, "algorithm": "tree"},
        {"size_bytes": 256 * 2**20, "algorithm": "ring"},
    ]
    assert [(r["algorithm"], r["size_bytes"]) for r in found["results"]] == [
        ("tree", 1024), ("tree", 256 * 2**20), ("ring", 1024), ("ring", 256 * 2**20),
    ]  # fmt: skip
    tree = next(r for r in found["results"] if r["algorithm"] == "tree")
    assert tree["time_s"] == as_json("simulate tree --cluster switch:16@100Gbit/s,10us --size 1KiB")["time_s"]


def test_compare_lays_the_hierarchy_over_the_hosts() -> None:
    found = as_json("compare --cluster hosts:2x4 --sizes 1MiB")
    assert "hierarchical:levels=4x2" in {r["algorithm"] for r in found["results"]}


def test_plots_and_drawings_are_well_formed() -> None:
    assert run("compare --cluster hosts:2x2 --sizes 1KiB:1MiB*4 -o plot.svg").exit_code == 0
    assert run("cluster hosts:2x2 -o drawing.svg").exit_code == 0
    plot = ET.fromstring(Path("plot.svg").read_text())  # noqa: S314 - ours
    titles = {element.text for element in plot.iter("{http://www.w3.org/2000/svg}title")}
    assert {"ring", "tree", "hierarchical:levels=2x2"} <= titles
    drawing = ET.fromstring(Path("drawing.svg").read_text())  # noqa: S314 - ours
    assert len(list(drawing.iter("{http://www.w3.org/2000/svg}circle"))) == 7


def test_cluster_lists_every_link() -> None:
    found = as_json("cluster ring:3@50GB/s,1us --slow 0-1:0.5")
    links = {(link["src"], link["dst"]): link["bandwidth"] for link in found["links"]}
    assert links == {
        ("d0", "d1"): 25e9, ("d1", "d0"): 25e9, ("d1", "d2"): 50e9, ("d2", "d1"): 50e9, ("d2", "d0"): 50e9,
        ("d0", "d2"): 50e9,
    }  # fmt: skip
    assert (found["hosts"], found["ranks"]) == (3, 3)


def test_the_schema_of_cluster_files_needs_no_cluster() -> None:
    found = as_json("cluster --schema")
    assert found == as_json("cluster ring:2 --schema")
    assert {"format", "version", "name", "rank", "link"} == set(found["schema"]["$defs"]["ClusterFile"]["required"])


def test_this_machine_is_measured() -> None:
    found = as_json("cluster detect")
    assert found["kind"] == "measured"
    assert found["ranks"] >= 1
    assert all(1e8 < link["bandwidth"] < 1e13 for link in found["links"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("simulate ring --cluster nonsense:4", "no cluster is called 'nonsense'"),
        ("simulate ring --cluster ring:8 --slow 3-4", "a slow link is written 3-4:0.25"),
        ("simulate ring --cluster ring:8 --delay 5ms", "a delay is written RANK:TIME"),
        ("simulate ring --cluster ring:8 -n 9", "has 8 ranks, not 9"),
        ("cluster missing.toml", "cannot be read"),
        ("cluster switch:500 -o big.svg", "up to 128 can be drawn"),
        ("compare --cluster ring:8 --sizes 1MiB:1KiB", "from at least 1 byte upwards"),
        ("compare --cluster ring:8 --collective all_redcue", "did you mean 'all_reduce'?"),
        ("compare --cluster ring:8 --sizes 1KiB -o plot.png", "name the file something.svg, not 'plot.png'"),
        ("cluster ring:8 -o drawing.png", "name the file something.svg, not 'drawing.png'"),
        ("bench --sizes 8 --ranks 2 --plot bench.png", "name the file something.svg, not 'bench.png'"),
        ("compare --cluster ring:8 --sizes 1KiB -o nowhere/plot.svg", "there is no folder 'nowhere'"),
        ("cluster", "a cluster is needed, such as dgx-h100:2"),
        ("simulate ring --cluster ring:8 --size 64Mb", "a small b may be a bit"),
        ("simulate ring --cluster ring:8@50Gb/s", "write GB/s for bytes, or Gbit/s for bits"),
    ],
)
def test_a_mistake_is_one_message_and_status_2(line: str, message: str) -> None:
    result = run(line)
    assert result.exit_code == 2
    assert message in result.stderr
