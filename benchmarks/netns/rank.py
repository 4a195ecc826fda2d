"""The ranks of the rig, one per host: they measure the links, then carry out schedules with real bytes.

Messages are point-to-point calls of torch.distributed (Gloo, over TCP). All hosts read one clock, since they are
namespaces of one machine. One process loads what all need and becomes one per host. Started by compare.py, which
says what to do in a file and reads what is put beside it:

    python rank.py JOB.json
"""

from __future__ import annotations

import ctypes
import datetime as dt
import json
import os
import sys
import threading
import time
import traceback
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from follow import Follower

from farandole.algorithms import build
from farandole.schedule import Round, Schedule

LEAD_S = 0.01  # between naming a time to begin and that time
TIMEOUT_S = 60
CLONE_NEWNET = 0x40000000  # in the os module from Python 3.12 on


def begin_together() -> float:
    """Wait until all ranks are here, then until the time that rank 0 names; that time."""
    dist.barrier()
    start = torch.tensor([time.perf_counter() + LEAD_S], dtype=torch.float64)
    dist.broadcast(start, 0)
    time.sleep(max(0.0, float(start) - time.perf_counter()))
    return float(start)


def probes(rank: int, job: dict[str, Any]) -> list[dict[str, Any]]:
    """Ping-pong of every pair, and of every host with all others at once; those that this rank began.

    A ping-pong is a schedule too, carried out in the same way as those that are to be predicted.
    """
    ranks = job["ranks"]
    fans = [(root, [peer for peer in range(ranks) if peer != root]) for root in range(ranks) if ranks > 2]
    found = []
    for root, peers in [*((a, [b]) for a, b in combinations(range(ranks), 2)), *fans]:
        for size in job["probe_sizes"]:
            there, back = Round(src=root, dst=peers), Round(src=peers, dst=root)
            follower = Follower(Schedule("all_reduce", ranks, 1, (there, back)), rank, size)
            times = []
            dist.barrier()
            for _ in range(job["probe_repeats"] + 1):
                begin = time.perf_counter()
                follower.run()
                times.append((time.perf_counter() - begin) / 2)
            if rank == root:
                found.append({"root": root, "peers": peers, "size_bytes": size, "times_s": times[1:]})
    return found


def reduction(size: int) -> float:
    """How many seconds a byte takes to be reduced, out of the cache."""
    one, other = torch.ones(size // 4), torch.ones(size // 4)
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        other.add_(one)
        times.append(time.perf_counter() - begin)
    return median(times) / size


def cases(rank: int, job: dict[str, Any]) -> list[list[float]]:
    """When this rank was done with each run of each case, in seconds from the common beginning."""
    found = []
    for collective, algorithm, size in job["cases"]:
        follower = Follower(build(collective, algorithm, job["ranks"]), rank, size)
        times = []
        for _ in range(job["repeats"] + 1):
            follower.fill()
            begin = begin_together()
            follower.run()
            times.append(time.perf_counter() - begin)
            dist.barrier()  # what a rank does after its own last round must not hold up those that still work
        follower.check()
        found.append(times[1:])
        if rank == 0:
            print(f"{collective} {algorithm} done", flush=True)
    return found


def _end_with_parent() -> None:
    """Whoever started this rank holds its input open; when that ends, so does the rank."""
    while os.read(0, 1024):
        pass
    os._exit(1)


def take_part(rank: int, path: Path, job: dict[str, Any]) -> None:
    """Do the job as one rank, on its host, and write what it found beside the job."""
    with Path(job["spaces"][rank]).open() as space:
        if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"rank {rank} cannot enter its network namespace")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    # Ranks mostly sleep. When they wake, other work on this machine must not hold them up; Gloo's threads inherit it.
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    timeout = dt.timedelta(seconds=TIMEOUT_S)
    dist.init_process_group(
        "gloo", init_method=job["meeting"], rank=rank, world_size=job["ranks"], timeout=timeout
    )  # fmt: skip
    measured = probes(rank, job)
    if rank == 0:
        print("links done", flush=True)
    found = {"probes": measured, "reduce_s_per_byte": reduction(2**23), "times_s": cases(rank, job)}
    Path(f"{path}.{rank}").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def main(path: Path) -> int:
    """Become one process per host; 1 if one of them fails (its peers then lose the connection, and fail too)."""
    job = json.loads(path.read_text())
    children = []
    for rank in range(job["ranks"]):
        child = os.fork()
        if not child:
            try:
                take_part(rank, path, job)
            except BaseException:  # noqa: BLE001 - whatever it is, it is told, and this process ends here
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return int(any(os.waitpid(child, 0)[1] for child in children))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
