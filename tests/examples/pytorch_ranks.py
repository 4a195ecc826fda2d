"""What each rank of the test of the PyTorch examples does; torchrun starts it with the file that the results go to.

Every example trains on Gloo, on farandole, and for comparison with one rank on its own. Losses go to the file as JSON,
example by example, so that one that fails does not hide those before it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

EXAMPLES = Path(__file__).parents[2] / "examples/pytorch"
EPOCHS = 2
PICTURES = 12 * 64  # half of them: enough to see that it learns


@contextmanager
def group(backend: str, store: Path, size: int) -> Iterator[None]:
    """A default group of ``size`` ranks, of which this process is one."""
    rank = int(os.environ["RANK"]) if size > 1 else 0
    file = f"{store}-{os.environ['RANK']}" if size == 1 else str(store)
    dist.init_process_group(
        backend, store=dist.FileStore(file, size), rank=rank, world_size=size, timeout=timedelta(seconds=40)
    )
    yield
    dist.destroy_process_group()


def trained(train: Callable[[Any, int], Iterator[Any]], digits: Any) -> list[dict[str, float]]:
    """What an example reports of each epoch."""
    return [asdict(epoch) for epoch in train(digits, EPOCHS)]


def normalized(module: Any) -> dict[str, float]:
    """How far the example's batch normalization over all ranks is from PyTorch's over one batch, at the most."""
    rank, size = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(1)
    whole = torch.randn(5 * size, 3, 2, 4, generator=generator) * 3 + 1
    weights = torch.randn(whole.shape, generator=generator)
    mine = slice(5 * rank, 5 * rank + 5)
    ours, theirs = module.SharedBatchNorm(3), torch.nn.BatchNorm2d(3)
    given = [whole.clone().requires_grad_(), whole[mine].clone().requires_grad_()]
    expected, got = theirs(given[0]), ours(given[1])
    (expected * weights).sum().backward()
    (got * weights[mine]).sum().backward()
    assert given[0].grad is not None
    assert given[1].grad is not None
    pairs = {
        "result": (expected[mine], got),
        "gradient": (given[0].grad[mine], given[1].grad),
        "running mean": (theirs.running_mean, ours.running_mean),
        "running variance": (theirs.running_var, ours.running_var),
    }
    return {what: (one - other).abs().max().item() for what, (one, other) in pairs.items()}


def main() -> None:
    """Run the examples that are named."""
    path, *names = map(str, sys.argv[1:])
    sys.path.insert(0, str(EXAMPLES))
    digits = importlib.import_module("digits").read()
    digits = replace(digits, pictures=digits.pictures[:PICTURES], labels=digits.labels[:PICTURES])
    found: dict[str, Any] = {}
    for name in names:
        module = importlib.import_module(name)
        results = {}
        for backend, size in (("gloo", 2), ("farandole", 2), ("gloo", 1)):
            if size == 1 and name == "uneven":
                continue  # it trains on other batches with another number of ranks
            with group(backend, Path(f"{path}.{name}.{backend}.{size}"), size):
                results[f"{backend} {size}"] = trained(module.train, digits)
                if name == "batch_norm" and backend == "farandole":
                    found["normalized"] = normalized(module)
        found[name] = results
        if os.environ["RANK"] == "0":
            Path(path).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
