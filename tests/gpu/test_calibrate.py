from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from farandole.algorithms import build
from farandole.cluster import load
from farandole.cost import Rates, price
from farandole.errors import FormatError
from farandole.gpu import calibrate, read_sweep
from farandole.gpu.rates import fit_rates
from farandole.gpu.report import as_dict, cluster_file, piece_rates, warnings
from farandole.gpu.sweep import Point, Sweep
from farandole.gpu.table import parse
from farandole.simulate import predict

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published"
TRUE = Rates(3e-6, 1 / 8e9, 1 / 20e9, 0.0)


def runs(*collectives_and_names: tuple[str, str], count: int = 8) -> list[Point]:
    """What runs would measure if the model of farandole cost were true."""
    return [
        Point(name, collective, 8, size, price(build(collective, name, 8), size, rates=TRUE).time_s, name)
        for collective, name in collectives_and_names
        for size in (1024 * 4**k for k in range(count))
    ]


def test_the_rates_of_our_schedules_are_found_again() -> None:
    fit = fit_rates(runs(("all_reduce", "ring"), ("all_reduce", "recursive_doubling"), ("all_gather", "ring")))
    assert fit.rates.alpha_s == pytest.approx(TRUE.alpha_s, rel=0.01)
    assert fit.rates.beta_s_per_byte == pytest.approx(TRUE.beta_s_per_byte, rel=0.01)
    assert fit.rates.gamma_s_per_byte == pytest.approx(TRUE.gamma_s_per_byte, rel=0.01)
    assert fit.held_out.largest < 0.01


def test_what_one_algorithm_cannot_tell_apart_is_named_and_left_at_nothing() -> None:
    fit = fit_rates(runs(("all_reduce", "ring")))
    assert fit.untold == ("gamma_s_per_byte", "overhead_s")
    assert fit.rates.gamma_s_per_byte == 0.0
    both = TRUE.beta_s_per_byte + TRUE.gamma_s_per_byte / 2
    assert fit.rates.beta_s_per_byte == pytest.approx(both, rel=0.01)


def test_a_piece_as_rates_is_the_same_line_for_a_ring() -> None:
    found = calibrate(read_sweep(PUBLISHED / "a100-8-nccl.csv")).series[0]
    piece = found.spans()[-1][2]
    rates = piece_rates(found, piece)
    assert rates is not None
    size = 2**25
    time = price(build("all_reduce", "ring", 8), size, rates=rates).time_s
    assert time == pytest.approx(piece.latency_s + size / piece.bandwidth, rel=1e-6)


def test_a_cluster_file_gives_the_same_time_when_it_is_simulated(tmp_path: Path) -> None:
    path = tmp_path / "made.json"
    entry = msgspec.toml.decode(cluster_file("made", 8, TRUE))
    path.write_bytes(msgspec.json.encode(entry))
    simulated = predict("all_reduce", "ring", load(path), 2**20).time_s
    assert simulated == pytest.approx(price(build("all_reduce", "ring", 8), 2**20, rates=TRUE).time_s, rel=1e-4)


def test_what_a_sweep_does_not_tell_is_said() -> None:
    sizes = [2**20 * 2**k for k in range(8)]
    large = Sweep("table", tuple(Point("x", "all_reduce", 8, s, 1e-6 + s / 1e9) for s in sizes))
    (found,) = calibrate(large).series
    assert (found.is_latency_told, found.is_bandwidth_told) == (False, True)
    assert warnings(found) == [
        "the latency is not told: at 1MiB it is less than half of the time; measure smaller sizes"
    ]
    latency = next(p for p in as_dict(calibrate(large))["parameters"] if p["name"] == "latency")
    assert latency["is_told"] is False


def test_a_fit_that_misses_unseen_sizes_says_that_it_is_not_to_be_used() -> None:
    times = [1e-5 * (1 + 9 * (k % 4 == 1)) for k in range(12)]
    jumpy = Sweep("table", tuple(Point("x", "all_reduce", 8, 8 * 2**k, time) for k, time in enumerate(times)))
    (found,) = calibrate(jumpy).series
    assert any("do not predict with them" in text for text in warnings(found))


@pytest.mark.parametrize(("per_byte_s", "is_told"), [(1 / 50e9, True), (1 / 50e12, False)])
def test_additions_are_what_a_reduce_scatter_takes_longer_than_an_all_gather(per_byte_s: float, is_told: bool) -> None:
    sizes = [1024 * 4**k for k in range(10)]
    wobble = [1.01, 0.99] * 5
    points = [
        Point("in place", collective, 8, size, (2e-5 + size / 100e9 + more * size * 7 / 8) * off)
        for collective, more in (("all_gather", 0.0), ("reduce_scatter", per_byte_s))
        for size, off in zip(sizes, wobble, strict=True)
    ]
    (found,) = calibrate(Sweep("nccl-tests", tuple(points))).reductions
    assert found.is_told == is_told
    if is_told:
        assert found.per_byte_s == pytest.approx(per_byte_s, rel=0.1)


def test_too_few_sizes_have_no_parameters_and_say_why() -> None:
    found = calibrate(read_sweep(PUBLISHED / "a100-16-nccl.csv"))
    assert not found.has_parameters
    assert "2 sizes are too few" in found.series[0].refusal
    plain = as_dict(found)
    assert (plain["parameters"], plain["in_sample_error"], plain["held_out_error"]) == ([], None, None)


def test_results_that_were_wrong_are_left_out(tmp_path: Path) -> None:
    rows = [
        {"algorithm": "ring", "collective": "all_reduce", "ranks": 4, "size_bytes": 8 * 4**k, "median_s": 1e-5,
         "checked": k != 2, "dtype": "float32", "root": 0}
        for k in range(6)
    ]  # fmt: skip
    path = tmp_path / "run.json"
    path.write_bytes(msgspec.json.encode({"format": "farandole.run", "version": 1, "results": rows}))
    found = read_sweep(path)
    assert len(found.points) == 5
    assert found.notes == ("result 2 (ring, 128 B) had a wrong result and is left out",)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "not JSON"),
        ("a.json", '{"format": "farandole.cost", "version": 1}', "made by farandole run --json"),
        (
            "a.json",
            '{"format": "farandole.run", "version": 1, "results": [{}]}',
            "result 0 lacks or garbles 'algorithm'",
        ),
        ("a.log", "hello", "no measured time in it"),
        ("a.csv", "# collective: all_reduce\n# ranks: 8\nsize,time\n1,2\n", "line 3: the columns are"),
        ("a.csv", "size_bytes,time_us\n1,2\n", "says '# collective: NAME' and '# ranks: N'"),
        ("a.csv", "# collective: all_reduce\n# ranks: 8\nsize_bytes,time_us\n1,x\n", "line 4: could not convert"),
        ("a.csv", "# collective: all_reduce\n# ranks: 8\nsize_bytes,time_us\n1\n", "line 4 has 1 cells"),
        ("a.csv", "# collective: all_reduce\n# ranks: 8\nsize_bytes,time_us\n1,0\n", "line 4: sizes and times"),
    ],
)
def test_files_that_are_not_what_they_should_be_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        read_sweep(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_table_says_what_it_is() -> None:
    text = "# collective: all_gather\n# ranks: 4\n# source: here\nseries,size_bytes,time_us\nours,1024,12.5\n"
    found = parse(text)
    assert found.facts["source"] == "here"
    assert found.points == (Point("ours", "all_gather", 4, 1024, pytest.approx(12.5e-6)),)  # type: ignore[arg-type]
