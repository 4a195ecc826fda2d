from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest

from farandole.bench import machine
from farandole.bench.peers import Missing
from farandole.bench.plot import plot
from farandole.bench.report import as_json, mean_rows, ratios, tables
from farandole.bench.sweep import Measured, Sweep


def row(library: str, size_bytes: int, median_s: float, *, checked: bool = True, ranks: int = 2) -> Measured:
    mean_s = 1.5 * median_s if library == "farandole" else 3 * median_s
    times = (median_s, mean_s, 4 * median_s, median_s / 2)
    return Measured(library, "all_reduce", ranks, size_bytes, 10, *times, checked, "", (median_s,), (mean_s,), ())


MEASURED = [
    *(row("farandole", 8, 1e-6), row("gloo", 8, 4e-5), row("openmpi", 8, 2e-6), row("mpich", 8, 5e-7)),
    *(row("farandole", 64, 2e-6), row("gloo", 64, 2e-5), row("openmpi", 64, 4e-6), row("mpich", 64, 8e-6)),
]
FACTS = {
    "cpu": "a CPU",
    "versions": {"python": "3"},
    "copy": {"in_cache": 2e10, "out_of_cache": 1e10, "out_of_cache_all_cores": 2e10},
}


def report(measured: list[Measured] = MEASURED) -> dict[str, Any]:
    sweep = Sweep(measured, {"gloo": "torch 2"}, [Missing("intelmpi", "it is not there", "pip install impi-rt")])
    return as_json(sweep, FACTS, {"ranks": [2]})


def test_a_ratio_is_their_time_over_ours() -> None:
    found = {(ratio.against, ratio.size_bytes): ratio.ratio for ratio in ratios(MEASURED)}
    assert found["gloo", 8] == pytest.approx(40.0)
    assert found["mpich", 8] == pytest.approx(0.5)


def test_a_ratio_is_taken_round_by_round() -> None:
    ours = replace(row("farandole", 8, 2e-6), batch_medians_s=(1e-6, 2e-6, 8e-6))
    slower_for_a_while = replace(row("gloo", 8, 8e-6), batch_medians_s=(2e-6, 8e-6, 16e-6), batch_means_s=(3e-6,))
    (found,) = ratios([ours, slower_for_a_while])
    assert found.ratio == pytest.approx(2.0)
    assert found.of_means == pytest.approx(1.0)


def test_the_best_of_the_mpis_is_chosen_at_each_point() -> None:
    best = {r.size_bytes: r.ratio for r in ratios(MEASURED) if r.against == "best_mpi"}
    assert best == {8: pytest.approx(0.5), 64: pytest.approx(2.0)}


def test_there_is_no_best_of_one() -> None:
    assert "best_mpi" not in {r.against for r in ratios(MEASURED[:3])}


def test_what_was_wrong_has_no_ratio() -> None:
    assert ratios([row("farandole", 8, 1e-6), row("gloo", 8, 1e-9, checked=False)]) == []
    assert ratios([row("farandole", 8, 1e-6, checked=False), row("gloo", 8, 1e-9)]) == []


def test_the_json_keeps_parameters_apart_and_says_what_is_missing() -> None:
    found = report()
    assert found["parameters"] == {"ranks": [2]}
    assert found["geomean"] == {
        "gloo": pytest.approx(20.0),
        "openmpi": pytest.approx(2.0),
        "mpich": pytest.approx(2.0**0.5),
        "best_mpi": pytest.approx(1.0),
    }
    assert found["geomean_of_means"] == {name: pytest.approx(2 * mean) for name, mean in found["geomean"].items()}
    assert found["missing"][0]["library"] == "intelmpi"
    assert found["machine"]["versions"] == {"python": "3", "gloo": "torch 2"}
    assert all(result["kind"] == "measured" for result in found["results"])


def test_tables_have_a_cell_for_every_library_and_size() -> None:
    (title, headings, rows), *others = tables(report())
    assert (title, others) == ("all_reduce on 2 ranks", [])
    assert headings == ["size", "farandole", "gloo", "openmpi", "mpich"]
    assert rows[0] == ["8", "1.00 us (p99 4.00 us)", "40.0 us (40.00x)", "2.00 us (2.00x)", "500 ns (0.50x)"]


def test_tables_show_gaps_and_wrong_results() -> None:
    made = tables(report([row("farandole", 8, 1e-6), row("farandole", 64, 1e-6), row("gloo", 8, 1e-6, checked=False)]))
    assert [line[2] for line in made[0][2]] == ["WRONG", "-"]


def test_means_are_by_group_as_well() -> None:
    headings, rows = mean_rows(report([*MEASURED, row("farandole", 8, 1e-6, ranks=4), row("gloo", 8, 3e-6, ranks=4)]))
    assert headings == ["geometric mean", "all", "all_reduce x2", "all_reduce x4"]
    assert rows[0][2:] == ["20.00", "3.00"]
    assert rows[1][2:] == ["2.00", "-"]


def test_the_plot_has_a_panel_for_each_group_and_a_point_for_each_time() -> None:
    text = plot(report([*MEASURED, row("farandole", 8, 1e-6, ranks=4), row("gloo", 8, 1.0, checked=False)])["results"])
    root = ET.fromstring(text)  # noqa: S314 - our own
    names = [element.tag.partition("}")[2] for element in root.iter()]
    assert names.count("circle") == len(MEASURED) + 1
    words = [element.text for element in root.iter() if element.text]
    assert {"all_reduce, 2 ranks", "all_reduce, 4 ranks", "farandole", "mpich"} <= set(words)


def test_the_same_results_give_the_same_plot_inside_its_frame() -> None:
    results = report()["results"]
    assert plot(results) == plot(results)
    root = ET.fromstring(plot(results))  # noqa: S314 - our own
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for circle in root.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 < float(circle.attrib["cx"]) < width
        assert 0 < float(circle.attrib["cy"]) < height


def test_facts_of_this_machine_are_there() -> None:
    found = machine.facts()
    assert found["cores"] >= 1
    assert all(speed > 0 for speed in found["copy"].values())
    assert {"cpu", "memory_bytes", "kernel", "versions", "load_average"} <= set(found)


def test_every_rank_moves_its_input_and_its_result() -> None:
    assert machine.moved_bytes("all_reduce", 8, 1000) == 8000
    assert machine.moved_bytes("reduce_scatter", 4, 1000) == 2500
