"""all_reduce by the ring of MLX, beside farandole in the same processes, as a Markdown table.

    pip install 'mlx[cpu]'
    python benchmarks/mlx_ring.py [--ranks 2,4] [--sizes 8,16MiB,128MiB]

MLX's ring is made for several hosts and goes through TCP, here by way of the loopback interface. Both libraries sum
float32 numbers and are called from Python, in turns, after a barrier; results are checked. A time is the mean over a
batch of calls, on rank 0, and of that the median over the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import farandole
from farandole.units import format_size, format_time, parse_sizes


def measure(hosts: str, sizes: list[int], turns: int) -> list[tuple[float, float]]:
    """In a rank: seconds of MLX and of farandole, for each size."""
    with farandole.init() as comm:
        # MLX looks at these when it is first asked.
        os.environ.update(MLX_HOSTFILE=hosts, MLX_RANK=str(comm.rank))
        import mlx.core as mx  # type: ignore[import-not-found]  # noqa: PLC0415

        ring = mx.distributed.init(strict=True, backend="ring")
        times = []
        for size in sizes:
            values = np.arange(size // 4, dtype=np.float32) % 1013 + comm.rank
            total = values * comm.size + sum(range(comm.size)) - comm.rank * comm.size
            theirs, result = mx.array(values), np.empty_like(values)

            def one_of_theirs(array: object = theirs) -> object:
                done = mx.distributed.all_sum(array, group=ring)
                mx.eval(done)
                return done

            def one_of_ours(array: np.ndarray = values, out: np.ndarray = result) -> object:
                return comm.all_reduce(array, out=out)

            found: list[list[float]] = [[], []]
            for _ in range(turns):
                for call, into in zip((one_of_theirs, one_of_ours), found, strict=True):
                    if not np.array_equal(np.asarray(call()), total):
                        raise RuntimeError(f"the sum of {size} bytes is wrong")
                    comm.barrier()
                    into.append(_batch(call, max(1, min(200, (8 << 20) // size))))
                    comm.barrier()
            times.append((statistics.median(found[0]), statistics.median(found[1])))
        return times


def _batch(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default="8,16MiB,128MiB")
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    sizes = parse_sizes(options.sizes)
    print("| ranks | size | MLX ring | farandole | ratio |\n| --- | --- | --- | --- | --- |")
    for ranks in map(int, options.ranks.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            hosts = Path(folder) / "hosts.json"
            hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in _free_ports(ranks)]))
            arguments = {"hosts": str(hosts), "sizes": sizes, "turns": options.turns}
            times = farandole.spawn(ranks, f"{__file__}:measure", arguments, timeout_s=600)[0]
        for size, (theirs, ours) in zip(sizes, times, strict=True):
            row = [ranks, format_size(size), format_time(theirs), format_time(ours), f"{theirs / ours:.1f}"]
            print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main()
