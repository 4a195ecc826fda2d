"""Tensor parallelism through DTensor: every rank has some columns of one layer and the matching rows of the next.

torchrun --standalone --nproc-per-node 2 examples/pytorch/tensor_parallel.py --backend farandole
farandole launch -n 2 examples/pytorch/tensor_parallel.py --backend gloo
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy, relu

from digits import CLASSES, PIXELS, Digits, Epoch, Meter, accuracy, main

WIDTH, BLOCKS = 96, 2


class Block(nn.Module):
    """Wide inside, and what goes in is added to what comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(PIXELS, WIDTH)
        self.narrow = nn.Linear(WIDTH, PIXELS)

    def forward(self, values: Tensor) -> Tensor:
        """Shapes: (batch, 64) to the same."""
        narrowed: Tensor = self.narrow(relu(self.widen(values)))
        return values + narrowed


def train(digits: Digits, epochs: int) -> Iterator[Epoch]:
    """Train with Adam; all ranks see the same pictures."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(BLOCKS)), nn.Linear(PIXELS, CLASSES))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model[:BLOCKS]:
        # Between the two no communication is needed; after the second, and before the first's gradient, one all-reduce.
        parallelize_module(block, mesh, {"widen": ColwiseParallel(), "narrow": RowwiseParallel()})
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, foreach=False)  # weights of two kinds
    for epoch in range(epochs):
        meter = Meter()
        for pictures, labels in digits.all_batches(epoch):
            loss = cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.step(loss)
        yield meter.epoch(accuracy(model, digits))


if __name__ == "__main__":
    main(train, __doc__)
