"""FSDP2: every rank keeps a part of each layer's weights; they are gathered to be used, gradients scattered after.

torchrun --standalone --nproc-per-node 2 examples/pytorch/fully_sharded.py --backend farandole
farandole launch -n 2 examples/pytorch/fully_sharded.py --backend gloo
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from digits import Digits, Epoch, Meter, accuracy, main, perceptron


def train(digits: Digits, epochs: int) -> Iterator[Epoch]:
    """Train with Adam, whose state is in parts as well."""
    model = perceptron()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        meter = Meter()
        for pictures, labels in digits.batches(epoch):
            loss = cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.step(loss)
        yield meter.epoch(accuracy(model, digits))


if __name__ == "__main__":
    main(train, __doc__)
