from __future__ import annotations

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.gpu.branches import fit_branches
from farandole.gpu.fit import errors, fit_series
from farandole.gpu.pieces import Model, Piece
from farandole.gpu.sweep import Point

SIZES = [8.0 * 2**k for k in range(26)]
TRUE = Model((Piece(10e-6, 1e9), Piece(40e-6, 20e9), Piece(200e-6, 100e9)))


def measured(model: Model, noise: float = 0.0, seed: int = 3) -> list[float]:
    """The model's times, each off by a part that is drawn once."""
    off = np.random.default_rng(seed).normal(0.0, noise, len(SIZES))
    return [float(time) for time in model.times(SIZES) * np.exp(off)]


def test_pieces_are_found_again() -> None:
    fit = fit_series(SIZES, measured(TRUE))
    for found, true in zip(fit.model.pieces, TRUE.pieces, strict=True):
        assert found.latency_s == pytest.approx(true.latency_s, rel=0.02)
        assert found.bandwidth == pytest.approx(true.bandwidth, rel=0.02)
    assert fit.model.switches() == pytest.approx(TRUE.switches(), rel=0.05)
    assert fit.held_out.largest < 0.05


def test_a_straight_line_stays_one_even_with_noise() -> None:
    fit = fit_series(SIZES, measured(Model((Piece(20e-6, 5e9),)), noise=0.02))
    assert len(fit.model.pieces) == 1
    assert fit.model.pieces[0].latency_s == pytest.approx(20e-6, rel=0.05)


def test_one_odd_point_does_not_bend_the_line() -> None:
    times = measured(Model((Piece(20e-6, 5e9),)))
    times[12] *= 4
    fit = fit_series(SIZES, times)
    assert fit.trained.times(SIZES)[-1] == pytest.approx(times[-1], rel=0.1)
    assert fit.in_sample.largest > 0.5


def test_nothing_is_taken_from_what_is_held_out() -> None:
    times = measured(TRUE, noise=0.05)
    changed = [time * (3.0 if place % 2 else 1.0) for place, time in enumerate(times)]
    first, second = fit_series(SIZES, times), fit_series(SIZES, changed)
    assert second.trained == first.trained
    assert second.model != first.model
    assert second.held_out.median > 0.5


def test_there_are_fewer_numbers_than_points_to_fit_them_to() -> None:
    for count in range(5, 14):
        fit = fit_series(SIZES[:count], measured(TRUE)[:count])
        assert fit.trained.parameters < fit.training.sum()
        assert fit.held_out.points == count // 2


def test_too_few_sizes_are_refused_with_what_is_missing() -> None:
    with pytest.raises(UsageError, match="4 sizes are too few: 5 different ones are needed") as caught:
        fit_series([*SIZES[:4], SIZES[0]], [*measured(TRUE)[:4], 1e-5])
    assert caught.value.facts == {"expected": 5, "got": 4}


def test_errors_are_relative() -> None:
    found = errors(np.array([1.1, 0.9, 2.0]), np.array([1.0, 1.0, 1.0]))
    assert found.median == pytest.approx(0.1)
    assert (found.largest, found.points) == (1.0, 3)


def points(sparse: float = 0.6) -> list[Point]:
    lines = {("ring", "LL"): (100e-6, 2e9), ("tree", "LL"): (40e-6, 1e9), ("ring", "Simple"): (300e-6, 10e9)}
    found = []
    for (algorithm, protocol), (latency, bandwidth) in lines.items():
        for size in (32, 1024, 2**15, 2**19, 2**22, 2**26):
            time = latency + size / bandwidth if protocol == "LL" else float(np.hypot(latency, size / bandwidth))
            time *= sparse if algorithm == "ring" and size < 4 * 64 else 1.0
            found.append(Point(f"{algorithm} {protocol}", "all_reduce", 64, size, time, algorithm, protocol))
    return found


def test_lines_by_algorithm_are_found_again_and_the_fastest_with_them() -> None:
    fit = fit_branches(points())
    assert fit.model.latency_s == pytest.approx([100e-6, 40e-6, 300e-6], rel=0.01)
    assert 1 / fit.model.per_byte_s == pytest.approx([2e9, 1e9, 10e9], rel=0.01)
    assert fit.model.sparse_ring_factor == pytest.approx(0.6, rel=0.02)
    assert fit.trained.parameters == 7
    assert fit.training_points == 9
    assert fit.held_out.largest < 0.05
    assert all(fit.right_choices_of_split())


def test_algorithms_are_compared_over_the_same_sizes_only() -> None:
    with pytest.raises(UsageError, match="1 of 18 times are missing"):
        fit_branches(points()[:-1])
