"""A calibration as plain values, as a cluster file, and as the options of ``farandole cost``."""

from __future__ import annotations

from typing import Any

from farandole.algorithms import REGISTRY, build
from farandole.bandwidth import bus_factor
from farandole.cost import Rates, price
from farandole.gpu.branches import BranchFit
from farandole.gpu.calibrate import Calibration, Reduction, SeriesFit
from farandole.gpu.fit import Errors
from farandole.gpu.pieces import Piece
from farandole.gpu.rates import NAMES, RatesFit
from farandole.gpu.sweep import in_words
from farandole.units import format_size

SPLIT = "sizes in ascending order: 1st, 3rd, 5th, ... fitted, 2nd, 4th, ... held out"
POOR = 0.2  # a median error on held-out sizes above which the fit is not to be used
UNITS = {"alpha_s": "s", "beta_s_per_byte": "s/B", "gamma_s_per_byte": "s/B", "overhead_s": "s"}


def as_dict(calibration: Calibration) -> dict[str, Any]:
    """As plain values: ``parameters``, ``in_sample_error``, ``held_out_error``, and each fit on its own."""
    return {
        "kind": "computed",
        "source": calibration.kind,
        "split": SPLIT,
        "parameters": [
            *(parameter for each in calibration.series for parameter in parameters(each)),
            *(parameter for call, fit in calibration.rates for parameter in rate_parameters(call, fit)),
            *(reduction_parameter(each) for each in calibration.reductions),
        ],
        "in_sample_error": _plain(calibration.in_sample()),
        "held_out_error": _plain(calibration.held_out()),
        "series": [_series_dict(each) for each in calibration.series],
        "branches": [_branches_dict(*each) for each in calibration.branches],
        "rates": [_rates_dict(*each) for each in calibration.rates],
        "notes": list(calibration.notes),
    }


def warnings(series: SeriesFit) -> list[str]:
    """Whether the fit is poor, which parameters the sweep does not tell, and what to measure."""
    if series.fit is None:
        return []
    smallest, largest = (format_size(int(series.fit.sizes[i])) for i in (0, -1))
    found = []
    if series.fit.held_out.median > POOR:
        found.append(
            f"unseen sizes are missed by {series.fit.held_out.median:.0%} (median): lines do not describe these times"
            " well; do not predict with them, or measure more sizes"
        )
    if not series.is_latency_told:
        found.append(f"the latency is not told: at {smallest} it is less than half of the time; measure smaller sizes")
    if not series.is_bandwidth_told:
        found.append(
            f"the bandwidth is not told: at {largest} bytes are less than half of the time; measure larger sizes"
        )
    return found


def rate_parameters(call: tuple[str, int], fit: RatesFit) -> list[dict[str, Any]]:
    """Start-up, time per byte sent and reduced, and overhead, each with its unit, and whether the runs tell it."""
    return [
        {"name": name, "value": getattr(fit.rates, name), "unit": UNITS[name], "is_told": name not in fit.untold,
         "series": "", "collective": call[0], "ranks": call[1]}
        for name in NAMES
    ]  # fmt: skip


def reduction_parameter(reduction: Reduction) -> dict[str, Any]:
    """The time per byte reduced, from a reduce_scatter beside an all_gather."""
    return {
        "name": "reduction", "value": reduction.per_byte_s, "unit": "s/B", "is_told": reduction.is_told,
        "series": reduction.series, "collective": "reduce_scatter", "ranks": reduction.ranks,
    }  # fmt: skip


def cost_options(rates: Rates) -> str:
    """The rates as options of ``farandole cost``."""
    options = [f"--alpha {rates.alpha_s * 1e6:.6g}us", f"--beta {rates.beta_s_per_byte * 1e12:.6g}ps/B"]
    if rates.gamma_s_per_byte:
        options.append(f"--gamma {rates.gamma_s_per_byte * 1e12:.6g}ps/B")
    if rates.overhead_s:
        options.append(f"--overhead {rates.overhead_s * 1e6:.6g}us")
    return " ".join(options)


def parameters(series: SeriesFit) -> list[dict[str, Any]]:
    """Every number of a series' fit, with its unit, and whether the sweep tells it."""
    if series.fit is None:
        return []
    about = {"series": series.group[0], "collective": series.group[1], "ranks": series.group[2]}
    pieces = series.fit.model.pieces
    found: list[dict[str, Any]] = []
    for number, piece in enumerate(pieces):
        is_latency_told = number > 0 or series.is_latency_told
        is_bandwidth_told = number < len(pieces) - 1 or series.is_bandwidth_told
        found += [
            {"name": "latency", "piece": number, "value": piece.latency_s, "unit": "s", "is_told": is_latency_told},
            {"name": "bandwidth", "piece": number, "value": piece.bandwidth, "unit": "B/s",
             "is_told": is_bandwidth_told},
        ]  # fmt: skip
    found += [
        {"name": "switch", "piece": number, "value": size, "unit": "B", "is_told": True}
        for number, size in enumerate(series.fit.model.switches())
    ]
    return [{**parameter, **about} for parameter in found]


def piece_rates(series: SeriesFit, piece: Piece) -> Rates | None:
    """The alpha and beta with which ``farandole cost ring`` gives this piece; None where there is no such ring."""
    _, collective, ranks = series.group
    if ("ring" not in {name for what, name in REGISTRY if what == collective}) or ranks < 2:
        return None
    size = 4 * ranks * 1024
    counted = price(build(collective, "ring", ranks), size, rates=Rates(0, 1, 0, 0))
    return Rates(piece.latency_s / counted.rounds, size / (counted.time_s * piece.bandwidth), 0.0, 0.0)


def cluster_file(name: str, ranks: int, rates: Rates) -> str:
    """A cluster file (see docs/clusters.md): ``ranks`` ranks on one switch, with these rates."""
    reduce = f"{1e-9 / rates.gamma_s_per_byte:.6g}GB/s" if rates.gamma_s_per_byte else "0"
    return "\n".join(
        [
            "# Made by farandole calibrate; it holds for the sizes that were measured.",
            'format = "farandole-cluster"',
            "version = 1",
            f'name = "{name}"',
            f'startup = "{rates.overhead_s * 1e6:.6g}us"',
            f'reduce = "{reduce}"',
            "",
            "[[rank]]",
            'node = "d{r}"',
            f"repeat = {{ r = {ranks} }}",
            "",
            "[[link]]",
            'src = "d{r}"',
            'dst = "switch"',
            f'bandwidth = "{1e-9 / rates.beta_s_per_byte:.6g}GB/s"',
            f'latency = "{rates.alpha_s / 2 * 1e6:.6g}us"',
            f"repeat = {{ r = {ranks} }}",
            "",
        ]
    )


def _plain(found: Errors | None) -> dict[str, Any] | None:
    return found.to_dict() if found else None


def _series_dict(series: SeriesFit) -> dict[str, Any]:
    name, collective, ranks = series.group
    whole: dict[str, Any] = {
        "series": name,
        "collective": collective,
        "ranks": ranks,
        "label": in_words(series.group),
        "sizes": series.sizes,
        "refusal": series.refusal,
        "warnings": warnings(series),
    }
    if series.fit is not None:
        factor = bus_factor(collective, ranks)
        whole |= {
            "pieces": [
                {"from_bytes": begin, "to_bytes": end, "latency_s": piece.latency_s, "algbw": piece.bandwidth,
                 "busbw": piece.bandwidth * factor}
                for begin, end, piece in series.spans()
            ],
            "training_points": int(series.fit.training.sum()),
            "free_numbers_in_training": series.fit.trained.parameters,
            "in_sample_error": series.fit.in_sample.to_dict(),
            "held_out_error": series.fit.held_out.to_dict(),
            "leave_one_out_error": series.fit.leave_one_out.to_dict(),
        }  # fmt: skip
    return whole


def _branches_dict(call: tuple[str, int], fit: BranchFit) -> dict[str, Any]:
    return {
        "collective": call[0],
        "ranks": call[1],
        "lines": [
            {"algorithm": name[0], "protocol": name[1], "latency_s": float(latency), "algbw": float(1 / per_byte)}
            for name, latency, per_byte in zip(fit.model.names, fit.model.latency_s, fit.model.per_byte_s, strict=True)
        ],
        "sparse_ring_factor": fit.model.sparse_ring_factor,
        "training_points": fit.training_points,
        "free_numbers_in_training": fit.trained.parameters,
        "in_sample_error": fit.in_sample.to_dict(),
        "held_out_error": fit.held_out.to_dict(),
        "leave_one_out_error": fit.leave_one_out.to_dict(),
        "best": [
            {"size_bytes": int(size), "algorithm": name[0], "protocol": name[1]}
            for size, name in zip(fit.sizes, fit.model.best(fit.sizes), strict=True)
        ],
    }


def _rates_dict(call: tuple[str, int], fit: RatesFit) -> dict[str, Any]:
    return {
        "collectives": call[0].split("+"),
        "ranks": call[1],
        **{name: getattr(fit.rates, name) for name in NAMES},
        "not_told": list(fit.untold),
        "training_points": fit.training_points,
        "free_numbers_in_training": fit.parameters,
        "in_sample_error": fit.in_sample.to_dict(),
        "held_out_error": fit.held_out.to_dict(),
    }
