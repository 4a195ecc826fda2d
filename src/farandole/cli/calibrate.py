"""``farandole calibrate``: from measured times to the parameters of a model, and what they are worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farandole.cli import _options as options
from farandole.cli._output import print_json, print_note, print_table, print_text
from farandole.errors import UsageError
from farandole.units import format_bandwidth, format_size, format_time

if TYPE_CHECKING:
    from farandole.gpu.branches import BranchFit
    from farandole.gpu.calibrate import Calibration, SeriesFit
    from farandole.gpu.fit import Errors
    from farandole.gpu.rates import RatesFit

EXAMPLES = (
    "farandole calibrate all_reduce_perf.log",
    "farandole calibrate old.log --collective all_reduce --ranks 8",
    "farandole run --ranks 4 --size 8:16MiB*8 --json > run.json && farandole calibrate run.json -o machine.toml",
    "farandole calibrate table.csv --json",
)


def calibrate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The output of nccl-tests; the JSON of farandole run or bench; or a .csv table.",
            show_default=False,
        ),
    ],
    collective: Annotated[
        str | None, typer.Option("--collective", "-c", help="Which test it is, if a log does not say.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("--ranks", "-n", min=2, metavar="N", help="How many ranks, if a log does not say.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write a cluster for --cluster to a .toml, or everything to a .json."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Fit latencies, bandwidths and switch points to measured times, and say how far they are off on unseen sizes.

    Every other size is held out of the fit and predicted by it; that error is what the parameters are worth. With
    fewer than five sizes there are no parameters, and the exit status is 1. The parameters hold between the smallest
    and the largest size measured. Runs of ours also give start-up, time per byte and per addition for farandole cost.
    docs/gpu.md has the model, and how near it comes to published tables. Needs: pip install 'farandole[calibrate]'.
    """
    if output is not None and output.suffix not in (".toml", ".json"):
        raise UsageError(f"{output} ends in .toml for a cluster or .json for everything", got=str(output))
    from farandole import gpu  # noqa: PLC0415 - loads NumPy
    from farandole.gpu.report import as_dict  # noqa: PLC0415

    sweep = gpu.read_sweep(file, collective or "", ranks or 0)
    found = gpu.calibrate(sweep)
    if json:
        print_json("calibrate", {"file": str(file), **as_dict(found)})
    else:
        _print(file, found)
    if output is not None and found.has_parameters:
        _write(output, file, found)
    if not found.has_parameters:
        print_note("nothing could be fitted")
        raise typer.Exit(1)


def _write(output: Path, file: Path, found: Calibration) -> None:
    from farandole.gpu.report import as_dict, cluster_file, piece_rates  # noqa: PLC0415 - loads NumPy

    if output.suffix == ".json":
        import msgspec  # noqa: PLC0415 - for this kind of file only

        whole = {"format": "farandole.calibrate", "version": 1, "file": str(file), **as_dict(found)}
        output.write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n")
        print_note(f"written to {output}")
        return
    if found.rates:
        (_, ranks), fit = found.rates[0]
        rates, what = fit.rates, "from all runs together"
    else:
        chosen = next((each for each in found.series if each.fit), None)
        rates_of_piece = piece_rates(chosen, chosen.spans()[-1][2]) if chosen else None
        if chosen is None or rates_of_piece is None:
            raise UsageError(
                f"no cluster can be made of {file}: it needs a series of a collective that a ring does", got=str(file)
            )
        rates, ranks = rates_of_piece, chosen.group[2]
        begin, end, _ = chosen.spans()[-1]
        what = f"for a ring from {format_size(round(begin))} to {format_size(round(end))} ({chosen.group[0]})"
    if rates.beta_s_per_byte <= 0:
        raise UsageError("no cluster can be made: the runs do not tell the time per byte; measure larger sizes")
    output.write_text(cluster_file(f"calibrated from {file.name}", ranks, rates), encoding="utf-8")
    print_note(f"written to {output}, {what}")


def _print(file: Path, found: Calibration) -> None:
    print_text(f"{file} ({found.kind}), fitted; errors are relative")
    for series in found.series:
        _print_series(series)
        if found.kind != "farandole.run":
            _print_as_ring(series)
    for call, branches in found.branches:
        _print_branches(call, branches)
    for call, rates in found.rates:
        _print_rates(call, rates)
    for each in found.reductions:
        told = "" if each.is_told else ", which is less than the fits are off: not told"
        print_text(
            f"\nreduction on {each.ranks} ranks, {each.series}: --gamma {each.per_byte_s * 1e12:.4g}ps/B, from the"
            f" reduce_scatter beside the all_gather{told}"
        )
    for note in found.notes:
        print_text(f"note: {note}")


def _print_series(series: SeriesFit) -> None:
    from farandole.bandwidth import bus_factor  # noqa: PLC0415 - loads NumPy
    from farandole.gpu.report import warnings  # noqa: PLC0415
    from farandole.gpu.sweep import in_words  # noqa: PLC0415

    print_text(f"\n{in_words(series.group)}")
    if series.fit is None:
        print_text(f"  no parameters: {series.refusal}")
        return
    factor = bus_factor(series.group[1], series.group[2])
    print_table(
        ["from", "to", "latency", "algbw", "busbw"],
        [
            [
                format_size(round(begin)),
                format_size(round(end)),
                format_time(piece.latency_s),
                format_bandwidth(piece.bandwidth),
                format_bandwidth(piece.bandwidth * factor),
            ]
            for begin, end, piece in series.spans()
        ],
    )
    fit = series.fit
    _print_errors(fit.in_sample, fit.held_out, int(fit.training.sum()), fit.trained.parameters)
    print_text(f"leave one out: {_error(fit.leave_one_out)}")
    for warning in warnings(series):
        print_text(f"note: {warning}")


def _print_as_ring(series: SeriesFit) -> None:
    """What gives each piece in ``farandole cost``, where a ring does the collective."""
    from farandole.gpu.report import cost_options, piece_rates  # noqa: PLC0415 - loads NumPy

    for begin, end, piece in series.spans():
        rates = piece_rates(series, piece)
        if rates is not None:
            reach = f"{format_size(round(begin))} to {format_size(round(end))}"
            call = f"-c {series.group[1]} -n {series.group[2]}"
            print_text(f"as a ring, {reach}: farandole cost ring {call} {cost_options(rates)}")


def _print_branches(call: tuple[str, int], fit: BranchFit) -> None:
    print_text(f"\n{call[0]} on {call[1]} ranks, algorithms and protocols together")
    model = fit.model
    print_table(
        ["algorithm", "protocol", "latency", "algbw"],
        [
            [*name, format_time(float(latency)), format_bandwidth(float(1 / per_byte))]
            for name, latency, per_byte in zip(model.names, model.latency_s, model.per_byte_s, strict=True)
        ],
    )
    _print_errors(fit.in_sample, fit.held_out, fit.training_points, fit.trained.parameters)
    print_text(f"leave one size out: {_error(fit.leave_one_out)}")
    right = fit.right_choices_of_split()
    print_text(f"the fastest is the one that measured so for {sum(right)} of {len(right)} sizes, by the same split")


def _print_rates(call: tuple[str, int], fit: RatesFit) -> None:
    from farandole.gpu.report import cost_options  # noqa: PLC0415 - loads NumPy

    print_text(f"\nour schedules on {call[1]} ranks ({call[0].replace('+', ', ')}), all together")
    print_text(f"farandole cost ALGORITHM -n {call[1]} {cost_options(fit.rates)}")
    _print_errors(fit.in_sample, fit.held_out, fit.training_points, fit.parameters)
    if fit.untold:
        names = ", ".join(name.partition("_")[0] for name in fit.untold)
        print_text(f"note: {names} cannot be told from the others by these runs; other collectives or algorithms may")


def _print_errors(in_sample: Errors, held_out: Errors, training: int, parameters: int) -> None:
    print_text(f"in sample: {_error(in_sample)}")
    print_text(f"held out: {_error(held_out)}, by {parameters} numbers fitted to {training} other points")


def _error(error: Errors) -> str:
    return f"{error.median:.1%} median, {error.largest:.1%} at worst, {error.points} points"
