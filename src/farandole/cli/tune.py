"""``farandole tune``: measure which algorithm is fastest on this machine, and keep that as a profile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farandole.cli import _options as options
from farandole.cli._output import print_json, print_note, print_table, print_text
from farandole.cli._progress import progress
from farandole.errors import UsageError
from farandole.units import counted, format_size, format_time, parse_sizes, parse_time

if TYPE_CHECKING:
    from farandole.run.profile import Profile, Table

_MOST_OTHERS = 0.05  # of the cores' time, by other programs, before that is worth a word

EXAMPLES = (
    "farandole tune",
    "farandole tune --ranks 4 --collective all_reduce,all_gather --sizes 1KiB:1MiB*4 --budget 20s",
    "farandole tune --budget 300s -o my_machine.json",
)


def tune(
    ranks: Annotated[str, typer.Option("--ranks", "-n", help="Numbers of ranks, one job of each.")] = "2,4,8",
    sizes: Annotated[
        str, typer.Option("--sizes", "-s", help="Sizes of the largest buffer of a rank: 64:16MiB*8, or 1KiB,1MiB.")
    ] = "64:16MiB*8",
    collective: Annotated[
        list[str] | None,
        typer.Option("--collective", "-c", help="What to measure.  [default: all]", show_default=False),
    ] = None,
    budget: Annotated[str, typer.Option("--budget", help="About how long to measure, in all.")] = "60s",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Where to keep the profile.  [default: where it is looked for]",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure which algorithm is fastest for each collective, number of ranks and size, and write a profile.

    From then on, calls that ask for no algorithm take the measured one. The algorithms take turns on real processes
    of this machine, and one replaces the default only if it is faster by more than the noise. The machine should
    have nothing else to do.

    The profile is ~/.config/farandole/profile.json, or what FARANDOLE_PROFILE names. One of this machine that is
    there keeps what is not measured again.
    """
    size_list, budget_s = parse_sizes(sizes), parse_time(budget)
    from farandole.bench import tune as bench  # noqa: PLC0415 - loads NumPy
    from farandole.bench.tune_rank import PARTS  # noqa: PLC0415
    from farandole.run.profile import write_profile  # noqa: PLC0415

    contests = bench.plan(_counts(ranks), size_list, [name for name in ",".join(collective or []).split(",") if name])
    target = _target(output)
    before = _existing(target)
    with progress(PARTS * len(contests)) as advance:
        found = bench.measure(contests, budget_s=budget_s, progress=advance)
    profile = found
    if before is not None:
        if (before.machine.cpu, before.machine.cores) == (found.machine.cpu, found.machine.cores):
            profile = before.updated(found)
        else:
            print_note(f"{target} was of another machine, and is replaced")
    write_profile(profile, target)
    points = [(table, point) for table in found.tables for point in table.points]
    if json:
        print_json("tune", _as_json(found, target, budget_s))
    else:
        machine = found.machine
        print_text(f"measured on {machine.cpu}, {counted(machine.cores, 'core')}, {machine.kernel}; {found.dtype}")
        for table in found.tables:
            _print(table)
        print_text(f"\nkept in {target}")
    if found.others_share > _MOST_OTHERS:
        print_note(
            f"other programs used {found.others_share:.0%} of the cores meanwhile, so what is best here may not be so "
            "when they are gone: measure again when the machine has nothing else to do"
        )
    few = sum(bench.undecided(point) for _, point in points)
    if few:
        print_note(
            f"{few} of {counted(len(points), 'contest')} had too few rounds to decide anything, and the default stays: "
            "give more --budget, or fewer sizes"
        )


def _counts(text: str) -> list[int]:
    names = [name.strip() for name in text.split(",")]
    if not all(name.isdecimal() and len(name) < 6 for name in names):
        raise UsageError(f"numbers of ranks are written 2,4,8, not {text!r}", got=text)
    return [int(name) for name in names]


def _target(output: Path | None) -> Path:
    """Where the profile goes; an error now is better than one after the measurement."""
    from farandole.run.measurements import profile_path  # noqa: PLC0415
    from farandole.run.profile import OFF, VARIABLE  # noqa: PLC0415

    target = output if output is not None else profile_path(os.environ)[0]
    if target is None:
        raise UsageError(
            f"there is no place for the profile ({VARIABLE} is {OFF}, or HOME is not set): say where with -o FILE"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{target} cannot be written", got=str(target))
    return target


def _existing(target: Path) -> Profile | None:
    from farandole.run.profile import read_profile  # noqa: PLC0415

    return read_profile(target) if target.exists() else None


def _as_json(found: Profile, target: Path, budget_s: float) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415 - for this command only

    from farandole.run.explain import verdict  # noqa: PLC0415

    results = [
        {"collective": table.collective, "ranks": table.ranks, **msgspec.to_builtins(point), "reason": verdict(point)}
        for table in found.tables
        for point in table.points
    ]
    about = {"machine": msgspec.to_builtins(found.machine), "dtype": found.dtype, "op": found.op, "budget_s": budget_s}
    about["others_share"] = found.others_share
    return {"kind": "measured", **about, "profile": str(target), "results": results}


def _print(table: Table) -> None:
    rows = []
    for point in table.points:
        times = {row.algorithm: row for row in point.measured}
        mine, default = times[point.algorithm], times[point.default]
        rival = next((row for row in point.measured if row.algorithm != point.algorithm), None)
        rows.append(
            [
                format_size(point.size_bytes),
                point.algorithm,
                format_time(mine.median_s),
                "" if point.algorithm == point.default else f"{default.median_s / mine.median_s:.2f} x {point.default}",
                "" if rival is None else f"{rival.algorithm} {format_time(rival.median_s)}",
            ]
        )
    print_text(f"\n{table.collective} on {table.ranks} ranks")
    print_table(["size", "algorithm", "median", "faster than the default", "runner-up"], rows)
