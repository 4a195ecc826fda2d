"""Read a result of ``farandole bench --json`` and say, in Markdown, which goals it reaches and which it misses.

    python benchmarks/goals.py benchmarks/results/NAME.json

The goals: faster than the best MPI library at every size from 1 KiB, within 1.2 times of it below; geometric means of
1.3 over the best MPI library and of 20 over Gloo; long messages in less than twice the time that memory alone takes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from farandole._core import FAR_NS
from farandole.bench.machine import moved_bytes
from farandole.bench.report import BEST_MPI, MPIS, geometric_mean, mean_rows, tables
from farandole.units import format_bandwidth, format_size, format_time

LONG_BYTES = 8 << 20
FACTOR_BELOW_1_KIB = 1.2
GOALS = {BEST_MPI: 1.3, "gloo": 20.0}
MEMORY_FACTOR = 2.0
TELLS_FROM_BYTES = 32 << 10  # shorter calls may not find out where the cores are


def markdown(headings: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def times(report: dict[str, Any]) -> str:
    """All times, a table for each collective and number of ranks."""
    return "\n".join(f"**{title}**\n\n{markdown(headings, rows)}" for title, headings, rows in tables(report))


def against_mpi(report: dict[str, Any], by: str = "ratio") -> str:
    """Where the best MPI library is too near, or ahead; ``by`` is "ratio" or "of_means"."""
    rows, reached = [], 0
    found = [ratio for ratio in report["ratios"] if ratio["against"] == BEST_MPI]
    for ratio in found:
        wanted = 1.0 if ratio["size_bytes"] >= 1024 else 1 / FACTOR_BELOW_1_KIB
        if ratio[by] >= wanted:
            reached += 1
            continue
        size = format_size(ratio["size_bytes"])
        rows.append([ratio["collective"], str(ratio["ranks"]), size, f"{1 / ratio[by]:.2f}", f"{1 / wanted:.2f}"])
    head = ["collective", "ranks", "size", "our time / best MPI's", "goal: at most"]
    return f"Reached at {reached} of {len(found)} points." + (
        f" Missed at:\n\n{markdown(head, rows)}" if rows else "\n"
    )


def means(report: dict[str, Any]) -> str:
    """The geometric means, and the goals for them."""
    lines = [
        f"- {name}: {report['geomean'][name]:.2f}, goal {goal:g}: {'reached' if at_least else 'missed'}"
        for name, goal in GOALS.items()
        if name in report["geomean"]
        for at_least in [report["geomean"][name] >= goal]
    ]
    return markdown(*mean_rows(report)) + "\n" + "\n".join(lines) + "\n"


def by_means(report: dict[str, Any]) -> str:
    """The same by the means of batches, which see what ranks wait for each other now and then."""
    means = ", ".join(f"{name} {mean:.2f}" for name, mean in report["geomean_of_means"].items())
    return f"Geometric means: {means}.\n\n{against_mpi(report, 'of_means')}"


def by_distance(report: dict[str, Any]) -> str:
    """Longer messages, round by round: where the cores shared a cache, as far as ours could tell, and where not."""
    rows = [row for row in report["results"] if row["size_bytes"] >= TELLS_FROM_BYTES and row["checked"]]
    points: dict[tuple[str, int, int], dict[str, Any]] = {}
    for row in rows:
        points.setdefault((row["collective"], row["ranks"], row["size_bytes"]), {})[row["library"]] = row
    found: dict[str, list[float]] = {"a cache in common": [], "none": []}
    for libraries in points.values():
        mpis = [libraries[name]["batch_medians_s"] for name in MPIS if name in libraries]
        if "farandole" not in libraries or not mpis:
            continue
        ours = libraries["farandole"]
        for number, line_ns in enumerate(ours.get("batch_line_ns", [])):
            if line_ns == 0:  # not known
                continue
            best_s = min(times_s[number] for times_s in mpis)
            what = "none" if line_ns > FAR_NS else "a cache in common"
            found[what].append(best_s / ours["batch_medians_s"][number])
    head = ["the cores have", "rounds", "best MPI's time / ours, geometric mean", "rounds in which ours is faster"]
    shown = [
        [what, str(len(each)), f"{geometric_mean(each):.2f}", f"{sum(r >= 1 for r in each) / len(each):.0%}"]
        for what, each in found.items()
        if each
    ]
    return markdown(head, shown) if shown else "It was not recorded.\n"


def memory(report: dict[str, Any]) -> str:
    """Long messages beside the time in which this machine copies what must at least be moved."""
    speed = report["machine"]["copy"]["out_of_cache_all_cores"]
    rows, factors = [], []
    for row in report["results"]:
        if row["library"] == "farandole" and row["size_bytes"] >= LONG_BYTES and row["checked"]:
            least_bytes = moved_bytes(row["collective"], row["ranks"], row["size_bytes"])
            factors.append(row["median_s"] * speed / least_bytes)
            rows.append(
                [
                    row["collective"],
                    str(row["ranks"]),
                    format_size(row["size_bytes"]),
                    format_size(round(least_bytes)),
                    format_time(least_bytes / speed),
                    format_time(row["median_s"]),
                    f"{factors[-1]:.2f}",
                ]
            )
    if not rows:
        return "No long messages were measured.\n"
    head = ["collective", "ranks", "size", "must be moved", "limit", "measured", "measured / limit"]
    below = sum(factor < MEMORY_FACTOR for factor in factors)
    return (
        f"Copying by all cores: {format_bandwidth(speed)}. Below {MEMORY_FACTOR:g} times the limit at {below} of "
        f"{len(factors)} points; the geometric mean is {geometric_mean(factors):.2f} times.\n\n{markdown(head, rows)}"
    )


def main() -> None:
    """Print the sections."""
    report = json.loads(Path(sys.argv[1]).read_text())
    sections = {
        "Geometric means": means,
        "Point by point against the best MPI library": against_mpi,
        "By the mean of a batch": by_means,
        "By where the cores were": by_distance,
        "Against the speed of memory": memory,
        "All times": times,
    }
    for title, section in sections.items():
        print(f"## {title}\n\n{section(report)}")


if __name__ == "__main__":
    main()
