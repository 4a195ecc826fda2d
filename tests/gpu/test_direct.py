from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.gpu.direct import WAYS, Direct, fit_direct

TRUE = Direct(8, (15e-6, 20e-6, 40e-6), 180e9)
SIZES = [128.0 * 2**k for k in range(19)]


def test_latencies_and_bandwidth_are_found_again() -> None:
    fit = fit_direct(SIZES, TRUE.times(SIZES).tolist(), 8)
    assert fit.model.latency_s == pytest.approx(TRUE.latency_s, rel=0.02)
    assert fit.model.bandwidth == pytest.approx(TRUE.bandwidth, rel=0.02)
    assert fit.held_out.largest < 0.02
    assert fit.parameters < fit.training.sum()


def test_the_way_changes_with_the_size_from_few_steps_to_few_bytes() -> None:
    ways = TRUE.ways(SIZES)
    assert list(dict.fromkeys(ways)) == list(WAYS)


def test_one_shot_sends_everything_to_everyone_and_two_shot_only_parts() -> None:
    size = 2**24
    one, two, bulk = TRUE.table([size])[:, 0] - TRUE.latency_s
    assert one / two == pytest.approx(8 / 2)
    assert two / bulk == pytest.approx((120 / 128) / 0.5)
    assert bulk == pytest.approx(2 * 7 / 8 * size / 180e9 / (120 / 128))


def test_too_few_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="8 sizes are too few: 9 different ones"):
        fit_direct(SIZES[:8], TRUE.times(SIZES[:8]).tolist(), 8)
