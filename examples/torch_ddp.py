"""Train a small classifier of handwritten digits with DistributedDataParallel, on Gloo or on farandole.

    torchrun --standalone --nproc-per-node 2 examples/torch_ddp.py
    torchrun --standalone --nproc-per-node 2 examples/torch_ddp.py --backend gloo

Prints the loss of each epoch and the time per step. It needs scikit-learn, which brings the digits.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

import farandole.torch  # noqa: F401  # makes the backend known


def main() -> None:
    """Train; every rank has its own part of the digits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="farandole")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32)[rank::size] / 16
    targets = torch.tensor(digits.target)[rank::size]
    count = len(digits.data) // size // 32  # the same number of batches on every rank
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(options.epochs):
        total, begun = torch.zeros(()), time.perf_counter()
        for batch in range(count):
            part = slice(32 * batch, 32 * (batch + 1))
            loss = nn.functional.cross_entropy(model(inputs[part]), targets[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() / count
        step_ms = (time.perf_counter() - begun) / count * 1000
        dist.all_reduce(total, dist.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {total.item():.5f}, {step_ms:.2f} ms per step", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
