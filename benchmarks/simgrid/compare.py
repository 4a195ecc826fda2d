"""Our simulator beside SimGrid, on the same platforms and schedules.

Needs SimGrid with SMPI (Debian: ``apt-get install libsimgrid-dev``). A cluster is written as a SimGrid platform,
link by link and route by route; a schedule as a list of messages, which ``follow.c`` carries out with MPI calls.
SimGrid's network model is CM02 with its correction factors off, since ours has none: latency and bandwidth factors
1, no cross-traffic, no TCP window.

SMPI has two ways to send, and our rule lies between them. By rendezvous a message starts when both sides are
there, and the sender also waits for the latency; eagerly it starts at once, and the sender does not even wait until
its bytes have left. Ours starts at once and waits until they have left. Where ranks are in step the three are one.
A case that is not in step is compared with the way that does the same as ours in it; ``--protocol`` takes one way
for all cases, and shows where they part.

    python benchmarks/simgrid/compare.py [--json FILE] [--protocol eager|rendezvous] [--speed]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from farandole.algorithms import build
from farandole.cluster import Cluster, parse
from farandole.schedule import Schedule
from farandole.simulate import simulate

HERE = Path(__file__).parent
FACTORS = (
    "network/model:CM02", "network/latency-factor:1", "network/bandwidth-factor:1", "network/weight-S:0",
    "network/crosstraffic:0", "network/TCP-gamma:0", "smpi/simulate-computation:no", "smpi/os:0:0:0",
    "smpi/or:0:0:0", "smpi/ois:0:0:0", "smpi/wtime:0", "smpi/test:0", "smpi/iprobe:0", "smpi/init:0",
    "surf/precision:1e-12", "maxmin/precision:1e-9",
)  # fmt: skip
RENDEZVOUS, EAGER = 0, 2**30  # up to how many bytes a send does not wait for the receiver
ALONE, CONTENDED = 0.02, 0.05

# (cluster, algorithm, bytes, whether messages share links, up to how many bytes SimGrid's sends are eager)
CASES = [
    ("switch:16@10Gbit/s,20us", "ring", 2**22, False, RENDEZVOUS),
    ("switch:16@10Gbit/s,20us", "halving_doubling", 2**22, False, RENDEZVOUS),
    ("switch:16@10Gbit/s,20us", "tree", 2**22, False, RENDEZVOUS),
    ("switch:16@10Gbit/s,20us", "recursive_doubling", 2**22, False, RENDEZVOUS),
    ("full:8@50GB/s,1us", "direct", 2**24, False, RENDEZVOUS),
    ("ring:8@50GB/s,1us", "ring", 2**24, False, RENDEZVOUS),
    ("ring:8@50GB/s,1us", "bidirectional_ring", 2**24, False, RENDEZVOUS),
    ("torus:4x4@50GB/s,1us", "torus", 2**24, False, RENDEZVOUS),
    ("hosts:4x4@300GB/s,1us@25GB/s,5us", "ring", 2**24, False, EAGER),
    ("switch:16@10Gbit/s,20us", "direct", 2**22, True, RENDEZVOUS),
    ("switch:16@10Gbit/s,20us", "naive", 2**20, True, RENDEZVOUS),
    ("switch:16@10Gbit/s,20us", "parameter_server", 2**22, True, RENDEZVOUS),
    ("switch:16@10Gbit/s,20us", "double_tree", 2**24, True, RENDEZVOUS),
    ("hosts:4x4@300GB/s,1us@25GB/s,5us", "hierarchical:levels=4x4", 2**24, True, RENDEZVOUS),
    ("hosts:4x4@300GB/s,1us@25GB/s,5us", "halving_doubling", 2**24, True, RENDEZVOUS),
    ("hosts:4x4@300GB/s,1us@25GB/s,5us", "direct", 2**24, True, RENDEZVOUS),
    ("hosts:3x4@300GB/s,1us@25GB/s,5us", "recursive_doubling", 2**24, True, EAGER),
    ("torus:4x4@50GB/s,1us", "halving_doubling", 2**24, True, RENDEZVOUS),
    ("dgx-a100:2@300GB/s,2us@25GB/s,5us", "hierarchical:levels=8x2", 2**26, True, RENDEZVOUS),
    ("fat-tree:4@100Gbit/s,1us", "naive", 2**22, True, RENDEZVOUS),
]


def write_platform(cluster: Cluster, path: Path) -> None:
    """The cluster as a SimGrid platform: one host per rank, one link per link, a route for every pair."""
    lines = [
        '<?xml version="1.0"?>',
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
        '<platform version="4.1"><zone id="all" routing="Full">',
    ]
    lines += [f'<host id="r{rank}" speed="1Gf"/>' for rank in range(cluster.ranks)]
    for number in range(cluster.link_count):
        bandwidth, latency = float(cluster.bandwidth[number]), float(cluster.latency_s[number])
        policy = "SHARED" if cluster.shared[number] else "FATPIPE"
        lines.append(
            f'<link id="l{number}" bandwidth={quoteattr(f"{bandwidth!r}Bps")} latency={quoteattr(f"{latency!r}s")}'
            f' sharing_policy="{policy}"/>'
        )
    for src in range(cluster.ranks):
        for dst in range(cluster.ranks):
            if src != dst:
                links = "".join(f'<link_ctn id="l{link}"/>' for link in cluster.route(src, dst))
                lines.append(f'<route src="r{src}" dst="r{dst}" symmetrical="NO">{links}</route>')
    path.write_text("\n".join([*lines, "</zone></platform>", ""]))


def write_messages(schedule: Schedule, size_bytes: int, path: Path) -> None:
    """The schedule as messages, with whole chunks of equal size."""
    chunk, rest = divmod(size_bytes, schedule.chunks)
    if rest:
        raise SystemExit(f"{schedule.name}: {size_bytes} bytes are not {schedule.chunks} equal chunks")
    largest = chunk * max((int(round_.count.max()) for round_ in schedule.rounds), default=1)
    lines = [f"{len(schedule.rounds)} {2 * largest}"]  # twice, since two transfers may be one message
    for round_ in schedule.rounds:
        pairs: dict[tuple[int, int], int] = {}
        for src, dst, count in zip(round_.src.tolist(), round_.dst.tolist(), round_.count.tolist(), strict=True):
            pairs[src, dst] = pairs.get((src, dst), 0) + count * chunk
        lines.append(str(len(pairs)))
        lines += [f"{src} {dst} {count}" for (src, dst), count in pairs.items()]
    path.write_text("\n".join(lines) + "\n")


def simgrid(folder: Path, cluster: Cluster, schedule: Schedule, size_bytes: int, eager: int) -> tuple[float, float]:
    """(simulated seconds, seconds of waiting for it)."""
    program = folder / "follow"
    if not program.exists():
        subprocess.run(["smpicc", "-O2", str(HERE / "follow.c"), "-o", str(program)], check=True)
    write_platform(cluster, folder / "platform.xml")
    write_messages(schedule, size_bytes, folder / "messages.txt")
    (folder / "hosts.txt").write_text("".join(f"r{rank}\n" for rank in range(cluster.ranks)))
    command = [
        "smpirun", "-np", str(cluster.ranks), "-platform", "platform.xml", "-hostfile", "hosts.txt",
        *(f"--cfg={factor}" for factor in FACTORS), f"--cfg=smpi/async-small-thresh:{eager}",
        f"--cfg=smpi/send-is-detached-thresh:{eager}", "--log=root.thres:critical", "./follow", "messages.txt",
    ]  # fmt: skip
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    waited = time.perf_counter() - begin
    found = [line for line in done.stdout.splitlines() if line.startswith("time_s")]
    if done.returncode or not found:
        raise SystemExit(f"smpirun failed:\n{done.stdout}\n{done.stderr}")
    return float(found[0].split()[1]), waited


def compare(spec: str, algorithm: str, size_bytes: int, *, shares: bool, eager: int) -> dict[str, Any]:
    """One case, by both."""
    cluster = parse(spec).with_costs(startup_s=0.0, reduce_s_per_byte=0.0)
    schedule = build("all_reduce", algorithm, cluster.ranks)
    begin = time.perf_counter()
    ours = simulate(schedule, cluster, size_bytes)
    waited = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder:
        theirs, theirs_waited = simgrid(Path(folder), cluster, schedule, size_bytes, eager)
    return {
        "cluster": spec, "algorithm": algorithm, "size_bytes": size_bytes, "shares_links": shares, "eager": eager,
        "engine": ours.engine, "transfers": ours.transfers, "time_s": ours.time_s, "simgrid_time_s": theirs,
        "difference": ours.time_s / theirs - 1, "wall_s": waited, "simgrid_wall_s": theirs_waited,
    }  # fmt: skip


def main() -> int:
    """Print the table; 1 if a case is further apart than its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--speed", action="store_true", help="only the ring of 256 ranks, for the time it takes")
    parser.add_argument("--protocol", choices=("eager", "rendezvous"), help="for all cases, instead of each its own")
    options = parser.parse_args()
    cases = [("switch:256@10Gbit/s,20us", "ring", 2**22, False, RENDEZVOUS)] if options.speed else CASES
    results = []
    for spec, algorithm, size, shares, protocol in cases:
        eager = {"eager": EAGER, "rendezvous": RENDEZVOUS}.get(options.protocol, protocol)
        result = compare(spec, algorithm, size, shares=shares, eager=eager)
        results.append(result)
        limit = CONTENDED if shares else ALONE
        verdict = "" if abs(result["difference"]) <= limit else f"  more than {limit:.0%}"
        print(
            f"{spec:38s} {algorithm:24s} {result['time_s']:.6e} {result['simgrid_time_s']:.6e}"
            f" {result['difference']:+.3%} {result['engine']:7s}"
            f" {result['wall_s'] / result['transfers'] * 1e6:8.2f} us"
            f" {result['simgrid_wall_s'] / result['transfers'] * 1e6:8.1f} us a transfer{verdict}",
            flush=True,
        )
    if options.json:
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
        options.json.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n")
    return int(any(abs(r["difference"]) > (CONTENDED if r["shares_links"] else ALONE) for r in results))


if __name__ == "__main__":
    sys.exit(main())
