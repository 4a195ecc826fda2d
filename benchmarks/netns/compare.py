"""Real bytes on emulated hosts, beside the prediction.

Each host is a network namespace on a bridge whose links are limited in both directions (rig.py). One process per
host first measures the links by ping-pong, then carries out every algorithm with real bytes and checks the result
(rank.py). From the ping-pong alone a cluster is made (fit.py), and every run is simulated on it.

Needs root, ``ip`` and ``tc`` (Debian: iproute2), ``unshare`` and ``nsenter`` (util-linux), and torch. Bandwidth is
emulated, latency is what the kernel's is. Nothing is left behind, however the script ends.

    python benchmarks/netns/compare.py --rates 100Mbit/s*4 --sizes 1MiB,4MiB,16MiB [--json FILE]

A long comparison can be made in parts: with ``--add``, results that FILE has of other cases are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from fit import Fit, fit
from rig import Rig, address

import farandole
from farandole.algorithms import build
from farandole.cluster import parse
from farandole.simulate import Settings, simulate
from farandole.simulate.compare import candidates
from farandole.units import format_bandwidth, format_size, format_time, parse_bandwidth, parse_sizes

HERE = Path(__file__).parent
LARGEST_PROBE = 2**20
GOAL_MEDIAN, GOAL_WORST = 0.05, 0.15

Case = tuple[str, str, int]


def main() -> int:
    """Build the rig, run everything, print both times; 1 if the predictions miss the goal."""
    options = _options()
    rates = [rate for text in options.rates.split(",") for rate in _repeated(text)]
    sizes = parse_sizes(options.sizes)
    if not 2 <= len(rates) <= 8:
        raise SystemExit(f"2 to 8 hosts are emulated, not {len(rates)}")
    cases = _cases(options.collectives.split(","), options.algorithms, len(rates), sizes)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))  # so that the rig's block ends
    earlier = _earlier(options.json, rates, options.queues) if options.add else {"runs": [], "results": []}
    with Rig(rates, fair=options.queues == "fair") as rig:
        found = _measured(rig, cases, options.repeats)
    fitted = fit(len(rates), [p for one in found for p in one["probes"]], found[0]["reduce_s_per_byte"])
    print(
        f"alpha {format_time(fitted.latency_s + fitted.startup_s)} of which {format_time(fitted.startup_s)} a message,"
        f" hosts {', '.join(format_bandwidth(rate) for rate in fitted.bandwidths)}"
    )
    run = len(earlier["runs"])
    fresh = [_result(case, fitted, [one["times_s"][i] for one in found], run) for i, case in enumerate(cases)]
    results = _together(earlier["results"], fresh)
    errors = [abs(result["error"]) for result in results]
    for r in fresh:
        print(
            f"{r['collective']:14s} {r['algorithm']:20s} {format_size(r['size_bytes']):>8}"
            f"  measured {format_time(r['measured_s']):>8}  predicted {format_time(r['predicted_s']):>8}"
            f"  {r['error']:+.1%}"
        )
    print(f"{len(results)} cases: median error {median(errors):.1%}, worst {max(errors):.1%}")
    if options.json:
        facts = {
            "format": "farandole-netns", "version": 2, "made_by": f"farandole {farandole.__version__}",
            "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
            "rates": rates, "queues": options.queues,
            "median_error": median(errors), "worst_error": max(errors),
            "runs": [*earlier["runs"], {"repeats": options.repeats, **{n: getattr(fitted, n) for n in Fit.__slots__}}],
            "results": results,
        }  # fmt: skip
        options.json.write_text(json.dumps(facts, indent=2) + "\n")
    return int(median(errors) > GOAL_MEDIAN or max(errors) > GOAL_WORST)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rates", default="100Mbit/s*4", help="one per host, both ways; *N for N such hosts")
    parser.add_argument("--sizes", default="1MiB,4MiB,16MiB")
    parser.add_argument("--collectives", default="all_reduce,reduce_scatter,all_gather")
    parser.add_argument("--algorithms", default="", help="only these; all that there are, if not given")
    parser.add_argument("--queues", choices=["fair", "fifo"], default="fair", help="whether hosts take turns on links")
    parser.add_argument("--repeats", type=int, default=3, help="the median counts")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--add", action="store_true", help="keep what the file has of other cases")
    options = parser.parse_args()
    if options.add and not options.json:
        parser.error("--add needs --json FILE, the file to add to")
    return options


def _earlier(path: Path, rates: list[float], queues: str) -> dict[str, Any]:
    """What the file holds, if it is there."""
    if not path.exists():
        return {"runs": [], "results": []}
    facts: dict[str, Any] = json.loads(path.read_text())
    if (facts["format"], facts["version"], facts["rates"], facts["queues"]) != ("farandole-netns", 2, rates, queues):
        raise SystemExit(f"{path} is of another rig: give the same --rates and --queues, or another file")
    return facts


def _together(earlier: list[dict[str, Any]], fresh: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All results, a case's latest one only, in order."""
    latest = {(r["collective"], r["algorithm"], r["size_bytes"]): r for r in [*earlier, *fresh]}
    return [latest[case] for case in sorted(latest)]


def _repeated(text: str) -> list[float]:
    rate, _, times = text.partition("*")
    return [parse_bandwidth(rate)] * int(times or 1)


def _cases(collectives: list[str], algorithms: str, ranks: int, sizes: list[int]) -> list[Case]:
    """Every algorithm at every size, cut to whole elements in every chunk."""
    cases = []
    for collective in collectives:
        for name in candidates(collective, parse(f"switch:{ranks}")):
            if not algorithms or name in algorithms.split(","):
                unit = 4 * build(collective, name, ranks).chunks
                cases += [(collective, name, size // unit * unit) for size in sizes]
    return cases


def _measured(rig: Rig, cases: list[Case], repeats: int) -> list[dict[str, Any]]:
    """Start a process on every host, and wait until all are done; what each has found."""
    ranks, largest = len(rig.rates), min(LARGEST_PROBE, max(size for _, _, size in cases))
    job = {
        "ranks": ranks, "spaces": rig.spaces, "meeting": f"tcp://{address(0)}:29533",
        "probe_sizes": [8, largest // 4, largest], "probe_repeats": 3, "repeats": repeats, "cases": cases,
    }  # fmt: skip
    package = str(Path(farandole.__file__).parent.parent)
    environment = {
        **os.environ, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job))
        command = [sys.executable, str(HERE / "rank.py"), str(path)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
            _show(process.stdout or (), len(cases))
            if process.wait():
                raise SystemExit("a rank failed; what it said is above")
        return [json.loads(Path(f"{path}.{rank}").read_text()) for rank in range(ranks)]


def _show(progress: Iterable[str], cases: int) -> None:
    """Show how far the ranks are, on a terminal."""
    shown = sys.stderr.isatty()
    begin = time.monotonic()
    for done, _ in enumerate(progress):
        if shown:
            passed = format_time(time.monotonic() - begin)
            print(f"\r{done} of {cases} cases, {passed}   ", end="", file=sys.stderr, flush=True)
    if shown:
        print(file=sys.stderr)


def _result(case: Case, fitted: Fit, times: list[list[float]], run: int) -> dict[str, Any]:
    """``times`` are those of each repetition, by rank: it takes as long as its last rank. ``run`` is its number."""
    collective, algorithm, size = case
    times_s = [max(each) for each in zip(*times, strict=True)]
    ranks = len(times)
    settings = Settings(rendezvous=True)  # as Gloo sends
    predicted = simulate(build(collective, algorithm, ranks), fitted.cluster(), size, settings=settings).time_s
    measured = median(times_s)
    return {
        "collective": collective, "algorithm": algorithm, "ranks": ranks, "size_bytes": size, "measured_s": measured,
        "predicted_s": predicted, "error": predicted / measured - 1, "times_s": times_s, "run": run,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
