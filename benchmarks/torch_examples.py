"""The step times of the PyTorch examples, on farandole beside Gloo, as a Markdown table.

    torchrun --standalone --nproc-per-node 2 benchmarks/torch_examples.py [EXAMPLE ...]

Each example trains on the two backends in turns, in the same processes. A step's time is the median over the steps
of an epoch on rank 0, and of that the median over the epochs; the first epoch of a turn does not count. Losses are
compared epoch by epoch.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch.distributed as dist

EXAMPLES = Path(__file__).parents[1] / "examples/pytorch"
BACKENDS = ("gloo", "farandole")
ALL = [
    "ddp", "accumulate", "uneven", "fully_sharded", "zero", "tensor_parallel", "batch_norm", "experts", "pipeline",
    "halved", "low_rank",
]  # fmt: skip


def turn(train: Any, digits: Any, backend: str, store: Path, epochs: int) -> list[Any]:
    """What an example reports when it trains on a backend."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(backend, store=dist.FileStore(str(store), size), rank=rank, world_size=size)
    found = list(train(digits, epochs))
    dist.destroy_process_group()
    return found


def row(name: str, found: dict[str, list[list[Any]]]) -> str:
    """A line of the table: losses of the last epoch, how far apart at most, and step times."""
    ours, theirs = found["farandole"], found["gloo"]
    losses = [[epoch.loss for epoch in turns[0]] for turns in (theirs, ours)]
    apart = max(abs(one - other) / one for one, other in zip(*losses, strict=True))
    times = [statistics.median(epoch.step_s for turn_ in turns for epoch in turn_[1:]) for turns in (theirs, ours)]
    return (
        f"| {name} | {losses[0][-1]:.5f} | {losses[1][-1]:.5f} | {apart:.0e} | {ours[0][-1].accuracy:.1%} "
        f"| {times[0] * 1000:.2f} | {times[1] * 1000:.2f} | {times[0] / times[1]:.2f} |"
    )


def main() -> None:
    """Measure the examples that are named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", default=ALL)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    sys.path.insert(0, str(EXAMPLES))
    digits = importlib.import_module("digits").read()
    # The ranks of one run of torchrun have one parent, and no other run has it.
    folder = Path(tempfile.gettempdir()) / f"torch-examples-{os.getppid()}"
    folder.mkdir(exist_ok=True)
    is_first = os.environ["RANK"] == "0"
    if is_first:
        print(
            "| example | loss, Gloo | loss, farandole | apart | accuracy | step, Gloo (ms) | farandole (ms) | ratio |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name in options.examples:
        train = importlib.import_module(name).train
        found = defaultdict(list)
        for number in range(options.turns):
            for backend in BACKENDS:
                store = folder / f"{name}-{number}-{backend}"
                found[backend].append(turn(train, digits, backend, store, options.epochs))
                store.unlink(missing_ok=True)
        if is_first:
            print(row(name, found), flush=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
