"""How near the models come to published figures, and that the page about it says so."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from farandole.gpu.branches import every_split

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(240)  # a few seconds, but of computing alone


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_tables", ROOT / "scripts" / "gpu_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_tables"] = module
    spec.loader.exec_module(module)
    return module


def test_the_median_error_on_held_out_points_is_at_most_a_tenth_for_every_table(script: ModuleType) -> None:
    for name in script.FITTED:
        found = script.calibration(name)
        fits = [fit for _, fit in found.branches] or [each.fit for each in found.series]
        for fit in fits:
            assert fit.held_out.median <= 0.10, name
            points = getattr(fit, "training_points", None) or int(fit.training.sum())
            assert fit.trained.parameters < points, name


def test_the_fastest_algorithm_is_picked_for_six_of_seven_sizes_of_the_mi300x(script: ModuleType) -> None:
    fit = script.calibration("mi300x-64").branches[0][1]
    assert sum(fit.right_choices_of_split()) >= 6
    assert sum(fit.right_choices()) >= 6


def test_the_fastest_is_picked_for_six_of_seven_sizes_whichever_sizes_are_held_out(script: ModuleType) -> None:
    splits = every_split(script.calibration("mi300x-64").branches[0][1])
    assert len({split.fitted for split in splits}) == 10
    assert all(split.right_choices >= 6 for split in splits)
    assert all(split.held_out.median < 0.2 for split in splits)


def test_the_page_says_what_the_script_finds(script: ModuleType) -> None:
    assert script.differences(script.PAGE.read_text(encoding="utf-8"), script.page()) == []


def test_a_page_that_says_something_else_is_noticed(script: ModuleType) -> None:
    assert script.differences("off by 9.7%", "off by 9.6%") == []
    assert script.differences("off by 9.7%", "off by 19.7%") != []
    assert script.differences("a word", "another word") != []
    assert script.differences("one line", "one line\nand more") != []
