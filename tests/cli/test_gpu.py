from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from command_line import as_json, run
from farandole.algorithms import build
from farandole.cli import nccl
from farandole.cluster import load
from farandole.cost import Rates, price

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("line", [line for line in nccl.EXAMPLES if "dgx-h100:4" not in line])
def test_the_examples_of_the_help_run(line: str) -> None:
    result = run(line.removeprefix("farandole "))
    assert result.exit_code == 0, result.output
    assert result.stdout


def test_nccl_says_what_it_would_choose_and_what_is_best_beside_it() -> None:
    found = as_json("nccl --cluster dgx-a100:1 --sizes 1KiB,1GiB")
    assert (found["kind"], found["format"]) == ("computed", "farandole.nccl")
    small, large = found["results"]
    assert (small["algorithm"], small["protocol"], small["channels"]) == ("ring", "LL", 1)
    assert (large["algorithm"], large["protocol"], large["channels"]) == ("ring", "Simple", 24)
    assert large["busbw"] == pytest.approx(238e9, rel=0.01)
    assert small["simulated"]["ratio"] > 1
    assert found["channels"]["ring"]["channels"] == 12
    assert "NCCL by its own model, computed" in run("nccl --cluster dgx-a100:1 --sizes 1KiB").stdout


def test_calibrate_prints_parameters_and_both_errors() -> None:
    found = as_json(f"calibrate {PUBLISHED / 'a100-8-nccl.csv'}")
    assert found["format"] == "farandole.calibrate"
    assert {(p["name"], p["unit"]) for p in found["parameters"]} == {
        ("latency", "s"), ("bandwidth", "B/s"), ("switch", "B"),
    }  # fmt: skip
    assert found["held_out_error"]["points"] == 9
    assert found["in_sample_error"]["points"] == 19
    assert found["held_out_error"]["median"] < 0.1
    text = run(f"calibrate {PUBLISHED / 'a100-8-nccl.csv'}").stdout
    assert "held out:" in text
    assert "by 6 numbers fitted to 10 other points" in text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="reading TOML needs Python 3.11")
def test_what_was_calibrated_can_be_simulated_on() -> None:
    assert run(f"calibrate {PUBLISHED / 'a100-8-nccl.csv'} -o made.toml").exit_code == 0
    assert load(Path("made.toml")).ranks == 8
    simulated = as_json("simulate ring --cluster made.toml --size 32MiB")["time_s"]
    assert simulated == pytest.approx(379.4e-6, rel=0.1)


def test_runs_of_ours_give_the_rates_of_farandole_cost() -> None:
    rates = Rates(3e-6, 1 / 8e9, 1 / 20e9, 0.0)
    rows = [
        {"algorithm": name, "collective": collective, "ranks": 4, "size_bytes": size, "checked": True, "root": 0,
         "dtype": "float32", "median_s": price(build(collective, name, 4), size, rates=rates).time_s}
        for collective, name in (("all_reduce", "ring"), ("all_gather", "ring"), ("all_reduce", "recursive_doubling"))
        for size in (1024 * 8**k for k in range(6))
    ]  # fmt: skip
    Path("run.json").write_text(json.dumps({"format": "farandole.run", "version": 1, "results": rows}))
    result = run("calibrate run.json -o own.toml")
    assert result.exit_code == 0, result.output
    assert "farandole cost ALGORITHM -n 4 --alpha 3us --beta 125ps/B --gamma 50ps/B" in result.stdout
    assert "overhead cannot be told from the others" in result.stdout
    assert 'reduce = "20GB/s"' in Path("own.toml").read_text()
    found = as_json("calibrate run.json")
    alpha = next(p for p in found["parameters"] if p["name"] == "alpha_s")
    assert (alpha["unit"], alpha["is_told"]) == ("s", True)
    assert alpha["value"] == pytest.approx(3e-6, rel=1e-3)
    assert found["rates"][0]["not_told"] == ["overhead_s"]


def test_without_scipy_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    result = run(f"calibrate {PUBLISHED / 'a100-8-nccl.csv'}")
    assert result.exit_code == 2
    assert "pip install 'farandole[calibrate]'" in result.stderr


def test_everything_can_be_kept_in_a_file() -> None:
    assert run(f"calibrate {PUBLISHED / 'mi300x-64.csv'} -o all.json").exit_code == 0
    kept = json.loads(Path("all.json").read_text())
    assert kept["format"] == "farandole.calibrate"
    assert len(kept["branches"][0]["lines"]) == 6


def test_too_little_is_refused_with_status_1() -> None:
    result = run(f"calibrate {PUBLISHED / 'a100-16-nccl.csv'} -o none.toml")
    assert result.exit_code == 1
    assert "2 sizes are too few" in result.stdout
    assert not Path("none.toml").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nccl --cluster hosts:2x8", "does not say which GPUs it has: add --gpu hopper"),
        ("nccl --cluster dgx-a100:1 --collective all_to_all", "NCCL's model has no all_to_all"),
        ("nccl --cluster dgx-a100:1 --gpu hoper", "did you mean 'hopper'"),
        ("calibrate missing.log", "cannot be read"),
        ("calibrate missing.log -o a.yaml", "ends in .toml for a cluster or .json"),
    ],
)
def test_a_mistake_is_one_message_and_status_2(line: str, message: str) -> None:
    result = run(line)
    assert result.exit_code == 2
    assert message in result.stderr
