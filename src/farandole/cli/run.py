"""``farandole run``: run algorithms on processes of this machine, check every element, and time them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farandole.cli import _options as options
from farandole.cli._output import print_json, print_note, print_table, print_text
from farandole.cli._progress import progress
from farandole.cli._schedules import DEFAULT, schedule_of
from farandole.cli._traces import check_trace_path, write_trace
from farandole.errors import FarandoleError, UsageError
from farandole.units import counted, format_bandwidth, format_size, format_time, parse_sizes, parse_time

if TYPE_CHECKING:
    from farandole.schedule import Schedule
    from farandole.trace import Trace

DEFAULT_SIZES = "1KiB,64KiB,1MiB,16MiB"

EXAMPLES = (
    "farandole run --ranks 4",
    "farandole run ring:order=0,2,1,3 --ranks 4 --size 64MiB",
    "farandole run --ranks 8 --collective all_to_all --size 8:1MiB*4 --dtype int64",
    "farandole run my_schedule.json --op max --json",
    "farandole run ring --ranks 4 --size 1MiB --trace measured.json",
)


def run(
    algorithm: Annotated[
        str | None,
        typer.Argument(
            metavar="[ALGORITHM]", help=f"{options.ALGORITHM_HELP}  [default: all of them]", show_default=False
        ),
    ] = None,
    ranks: options.Ranks = None,
    collective: options.Collective = None,
    size: Annotated[
        str, typer.Option("--size", "-s", help="Sizes of the whole buffer: 64MiB, 1KiB,1MiB or a range 8:1MiB.")
    ] = DEFAULT_SIZES,
    dtype: options.Dtype = "float32",
    op: Annotated[str, typer.Option("--op", help="The reduction, where there is one.")] = "sum",
    root: options.Root = None,
    repetitions: Annotated[int, typer.Option("--repetitions", min=1, help="How often to time each, at most.")] = 100,
    limit: Annotated[str, typer.Option("--limit", help="How long to go on with each, at most.")] = "300ms",
    timeout: Annotated[str, typer.Option("--timeout", help="When to give up a call whose ranks do not come.")] = "60s",
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Also record one call of typical length, and write what every rank did when to this .json file.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Start N processes, run each algorithm on each size over shared memory, and print one table.

    Before it is timed, the result of every algorithm is compared element by element, on every rank, with what NumPy
    computes. Calls are timed back to back; a repetition's time is the mean over the ranks. The exit status is 1 if any
    result is wrong. farandole show --trace FILE shows a trace; a file that ends with .perfetto.json is for Perfetto.
    """
    sizes = [0] if collective == "barrier" else parse_sizes(size)
    limit_s, timeout_s = parse_time(limit), parse_time(timeout)
    schedules = _schedules(algorithm, ranks, collective, root)
    from farandole.cost import price  # noqa: PLC0415 - loads NumPy
    from farandole.ops import check_reduction, find_dtype, find_op  # noqa: PLC0415

    what = next(iter(schedules.values()))
    itemsize = find_dtype(dtype).itemsize
    check_reduction(find_op(op), find_dtype(dtype))
    common = {"collective": what.collective, "dtype": dtype, "op": op, "root": what.root}
    trials = [
        {"algorithm": name, "size_bytes": size_bytes, "repetitions": repetitions, "limit_s": limit_s, **common}
        for size_bytes in sizes
        for name in schedules
    ]
    own = {name: schedule for name, schedule in schedules.items() if _is_own(name)}
    if trace is not None:
        check_trace_path(trace)
        if len(trials) != 1 or what.ranks == 1:
            raise UsageError("--trace is of one algorithm and one size, on two ranks or more")
    outcomes = _outcomes(what.ranks, trials, own, timeout_s)
    results = []
    for outcome in outcomes:
        trial = outcome.pop("trial")
        schedule = schedules[trial["algorithm"]]
        priced = price(schedule, outcome["size_bytes"], itemsize=itemsize)
        sent = {"max": int(priced.bytes_sent.max()), "total": int(priced.bytes_sent.sum())}
        about = {"kind": "measured", **common, "algorithm": schedule.name or trial["algorithm"]}
        results.append({**about, **outcome, "rounds": priced.rounds, "bytes_sent_per_rank": sent})
    results.sort(key=lambda row: list(schedules).index(row["algorithm"]) if row["algorithm"] in schedules else 0)
    wrong = [row for row in results if not row["checked"]]
    if json:
        print_json("run", {"kind": "measured", "ranks": what.ranks, "results": results})
    else:
        _print(what, dtype, op, results)
    if trace is not None:
        write_trace(_recorded(what.ranks, trials[0], own, timeout_s), trace)
    for row in wrong:
        where = ", ".join(map(str, row["wrong_ranks"]))
        print_note(f"{row['algorithm']}, {format_size(row['size_bytes'])}: the result is wrong on ranks {where}")
    if wrong:
        raise typer.Exit(1)


def _is_own(algorithm: str) -> bool:
    """Whether it is a file of the user's, which the ranks get as a schedule."""
    return algorithm.endswith(".json") or ".py:" in algorithm


def _schedules(
    algorithm: str | None, ranks: int | None, collective: str | None, root: int | None
) -> dict[str, Schedule]:
    """What to run, by what the user calls it."""
    if algorithm is not None:
        schedule = schedule_of(algorithm, ranks, collective, root)
        if _is_own(algorithm):
            from farandole.verify import verify_schedule  # noqa: PLC0415 - for this case only

            verify_schedule(schedule).raise_if_wrong()
        return {algorithm: schedule}
    from farandole.algorithms import REGISTRY  # noqa: PLC0415 - loads NumPy
    from farandole.collectives import collective as find  # noqa: PLC0415

    chosen = find(collective or DEFAULT).name
    names = [name for c, name in REGISTRY if c == chosen]
    return {name: schedule_of(name, ranks or 4, chosen, root) for name in names}


def _outcomes(
    ranks: int, trials: list[dict[str, Any]], own: dict[str, Schedule], timeout_s: float
) -> list[dict[str, Any]]:
    from farandole.run.spawn import spawn  # noqa: PLC0415 - for this command only

    arguments = {"trials": trials, "schedules": _as_json(own), "settings": {"timeout_s": timeout_s}}
    with progress(len(trials)) as advance:
        answers = spawn(
            ranks,
            "farandole.bench.worker:run_trials",
            arguments,
            timeout_s=timeout_s * (len(trials) + 1),
            progress=advance,
        )
    if not isinstance(answers[0], list):
        raise FarandoleError("rank 0 did not report what it measured", got=answers[0])
    return answers[0]


def _recorded(ranks: int, trial: dict[str, Any], own: dict[str, Schedule], timeout_s: float) -> Trace:
    from farandole.run.spawn import spawn  # noqa: PLC0415 - for this command only
    from farandole.trace import loads  # noqa: PLC0415

    arguments = {"trial": trial, "schedules": _as_json(own), "settings": {"timeout_s": timeout_s}}
    with progress(1) as advance:
        advance("recording a call")
        answers = spawn(ranks, "farandole.bench.traced:typical_trace", arguments, timeout_s=timeout_s * 2)
    return loads(answers[0].encode())


def _as_json(own: dict[str, Schedule]) -> dict[str, str]:
    import msgspec  # noqa: PLC0415 - for this command only

    from farandole.export.json import schedule_to_json  # noqa: PLC0415

    return {name: msgspec.json.encode(schedule_to_json(schedule)).decode() for name, schedule in own.items()}


def _print(what: Schedule, dtype: str, op: str, results: list[dict[str, Any]]) -> None:
    from farandole.bandwidth import FACTORS  # noqa: PLC0415
    from farandole.collectives import collective  # noqa: PLC0415

    how = f"{dtype} {op}" if collective(what.collective).reduces else dtype
    print_text(f"{what.collective} of {how} on {counted(what.ranks, 'rank')}, measured on this machine")
    print_table(
        ["algorithm", "size", "rounds", "sent per rank", "median", "p99", "algbw", "busbw", "checked"],
        [
            [
                row["algorithm"],
                format_size(row["size_bytes"]),
                row["rounds"],
                format_size(row["bytes_sent_per_rank"]["max"]),
                format_time(row["median_s"]),
                format_time(row["p99_s"]),
                format_bandwidth(row["algbw"]),
                format_bandwidth(row["busbw"]),
                "yes" if row["checked"] else "WRONG",
            ]
            for row in results
        ],
    )
    print_text(f"sent per rank: by the busiest one; algbw = size / median, busbw = algbw x {FACTORS[what.collective]}")
