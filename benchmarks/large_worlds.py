"""How long farandole takes to price every built-in algorithm on every regular cluster of about 100,000 ranks.

    python benchmarks/large_worlds.py                         # the table; 20 minutes or so
    python benchmarks/large_worlds.py --json results.json     # and a record of it; known cases are not run again
    python benchmarks/large_worlds.py --clusters torus:50x50x40 --algorithms all_reduce/torus

Each case runs as a process of its own, under a limit of time and of memory. The wall time is all of it: Python and
farandole started, the cluster made, the algorithm priced, the result written as JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from farandole.algorithms.registry import REGISTRY
from farandole.units import parse_size

CLUSTERS = (
    "ring:100000",
    "switch:100000",
    "ethernet:100000",
    "hosts:12500x8",
    "dgx-a100:12500",
    "dgx-h100:12500",
    "torus:50x50x40",
    "torus:400x250",
    "fat-tree:74",
)
SIZE = "1GiB"
GOAL_S, GOAL_BYTES = 10.0, 2 << 30


def child(collective: str, algorithm: str, spec: str, size: str) -> None:
    """Price one case and print it, as ``farandole simulate --json`` does."""
    from farandole.cluster import parse  # noqa: PLC0415 - only the child needs them
    from farandole.simulate import predict  # noqa: PLC0415

    begin = time.perf_counter()
    result = predict(collective, algorithm, parse(spec), parse_size(size))
    facts = result.to_dict()
    print(
        json.dumps(
            {
                **{key: facts[key] for key in ("ranks", "time_s", "rounds", "transfers", "engine", "note")},
                "predict_s": time.perf_counter() - begin,
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
    )


def case(collective: str, algorithm: str, spec: str, size: str, limit_s: float) -> dict[str, Any]:
    """One case in a process of its own; ``error`` says why it has no result."""
    command = [sys.executable, __file__, "--child", collective, algorithm, spec, size]
    known = {"cluster": spec, "collective": collective, "algorithm": algorithm, "size_bytes": parse_size(size)}
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return {**known, "error": f"more than {limit_s:g} s"}
    wall_s = time.perf_counter() - begin
    if done.returncode:
        return {**known, "wall_s": wall_s, "error": (done.stderr.strip().splitlines() or ["?"])[-1]}
    return {**known, "wall_s": wall_s, **json.loads(done.stdout)}


def table(results: list[dict[str, Any]]) -> str:
    """One row per cluster: its slowest algorithms, the most memory, and what falls short."""
    lines = ["| cluster | ranks | cases | slowest | median | most memory | exact |", "| --- " * 7 + "|"]
    for spec in dict.fromkeys(result["cluster"] for result in results):
        rows = [result for result in results if result["cluster"] == spec]
        done = sorted((row for row in rows if "error" not in row), key=lambda row: float(row["wall_s"]))
        if not done:
            continue
        slowest = done[-1]
        most = max(int(row["peak_bytes"]) for row in done)
        exact = sum(not row["note"] for row in done)
        lines.append(
            f"| `{spec}` | {slowest['ranks']:,} | {len(done)} of {len(rows)} | {slowest['wall_s']:.1f} s"
            f" ({slowest['collective']} {slowest['algorithm']}) | {done[len(done) // 2]['wall_s']:.1f} s |"
            f" {most / 1e6:.0f} MB | {exact} |"
        )
    short = [
        f"- `{row['cluster']}` {row['collective']} {row['algorithm']}: "
        + (row.get("error") or f"{row['wall_s']:.1f} s, {row['peak_bytes'] / 1e6:.0f} MB")
        for row in results
        if "error" in row or row["wall_s"] > GOAL_S or row["peak_bytes"] > GOAL_BYTES
    ]
    return "\n".join([*lines, "", *(short or ["Every case stays within 10 s and 2 GiB."])])


def main() -> None:
    """Run the cases that are asked for, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clusters", nargs="*", default=CLUSTERS)
    parser.add_argument("--algorithms", nargs="*", default=[f"{c}/{a}" for c, a in sorted(REGISTRY)])
    parser.add_argument("--size", default=SIZE)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds per case")
    parser.add_argument("--json", type=Path, help="where to keep the results, and where those known are read from")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(*given.child)
        return
    kept: dict[str, Any] = {"results": []}
    if given.json and given.json.exists():
        kept = json.loads(given.json.read_text())
    known = {(r["cluster"], r["collective"], r["algorithm"]) for r in kept["results"]}
    for spec in given.clusters:
        for collective, _, algorithm in (text.partition("/") for text in given.algorithms):
            if (spec, collective, algorithm) in known:
                continue
            result = case(collective, algorithm, spec, given.size, given.limit)
            kept["results"].append(result)
            shown = result.get("error") or f"{result['wall_s']:.2f} s {result['peak_bytes'] / 1e6:.0f} MB"
            print(f"{spec:16s} {collective:14s} {algorithm:18s} {shown} {result.get('note', '')[:60]}", flush=True)
            if given.json:
                kept |= {"format": "farandole-large-worlds", "version": 1, "machine": platform.machine()}
                given.json.write_text(json.dumps(kept, indent=1) + "\n")
    print("\n" + table(kept["results"]))


if __name__ == "__main__":
    main()
